# SPDX-License-Identifier: BSD-3-Clause
"""librdzv: where it is, its structs and functions as ctypes needs them. Names and order are those of include/rdzv."""
from __future__ import annotations

import ctypes
import importlib
import os
from ctypes import POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = (0, 1)  # of the interface; tests/interop/python/test_python.py compares it with include/rdzv/version.h


def refuse_subinterpreter() -> None:
    """Callbacks of the library come from its own threads, which ctypes lets into the main interpreter only."""
    current = ctypes.pythonapi.PyInterpreterState_Get
    current.restype = c_void_p
    number = ctypes.pythonapi.PyInterpreterState_GetID
    number.restype, number.argtypes = c_int64, [c_void_p]
    if number(current()) != 0:
        raise ImportError("rdzv cannot be used in a subinterpreter (use a process, or the main interpreter)")


def candidates() -> list[str]:
    """RDZV_LIBRARY, the copy of a wheel, the one that was installed with this package, the one that the loader knows."""
    named = os.environ.get("RDZV_LIBRARY")
    if named:
        return [named]
    soname = "librdzv.so." + (".".join(map(str, VERSION)) if VERSION[0] == 0 else str(VERSION[0]))
    found = [os.path.join(HERE, "lib", soname)]
    try:
        found.append(os.path.join(HERE, importlib.import_module("rdzv._installed").LIBRARY))
    except ImportError:
        pass
    found = [path for path in found if os.path.exists(path)]
    return [*found, soname]


def load() -> ctypes.CDLL:
    refuse_subinterpreter()
    reasons = []
    for path in candidates():
        try:
            return check_version(ctypes.CDLL(path), path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(f"cannot load librdzv: {'; '.join(reasons)} (install it, or name it in RDZV_LIBRARY)")


def check_version(library: ctypes.CDLL, path: str) -> ctypes.CDLL:
    library.rdzv_version.restype = c_char_p
    version = library.rdzv_version().decode()
    major, minor = map(int, version.split(".")[:2])
    if major != VERSION[0] or minor < VERSION[1] or (major == 0 and minor != VERSION[1]):
        raise ImportError(f"{path} is librdzv {version}, and this package needs {VERSION[0]}.{VERSION[1]}")
    return library


# ---- structs ------------------------------------------------------------------------------------------------------


class Bytes(Structure):
    _fields_ = [("data", c_char_p), ("len", c_size_t)]


class Value(Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t)]


class ErrorStruct(Structure):
    _fields_ = [("code", c_int), ("message", c_char * 988), ("reserved", c_uint32 * 8)]


LogWrite = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class Log(Structure):
    _fields_ = [("size", c_size_t), ("write", LogWrite), ("user", c_void_p), ("level", c_int)]


class HashOptions(Structure):
    _fields_ = [("size", c_size_t), ("timeout_ms", c_int64), ("log", POINTER(Log)), ("cancel_fd", c_int)]


class FileOptions(Structure):
    _fields_ = [*HashOptions._fields_, ("num_workers", c_int64), ("run_id", c_char_p)]


class TcpOptions(Structure):
    _fields_ = [*HashOptions._fields_, ("dialect", c_int), ("announce_worker", c_bool), ("run_id", c_char_p),
                ("secret_file", c_char_p), ("tls_ca", c_char_p), ("tls_cert", c_char_p), ("tls_key", c_char_p),
                ("tls_host", c_char_p)]


class EtcdOptions(Structure):
    _fields_ = [("size", c_size_t), ("endpoints", c_char_p), ("https", c_bool), ("ca_cert", c_char_p),
                ("cert", c_char_p), ("key", c_char_p), ("user", c_char_p), ("password", c_char_p),
                ("read_timeout_ms", c_int64), ("log", POINTER(Log))]


class EtcdStoreOptions(Structure):
    _fields_ = [*HashOptions._fields_, ("etcd", POINTER(EtcdOptions))]


class Etcd3StoreOptions(Structure):
    _fields_ = [*HashOptions._fields_, ("etcd", POINTER(EtcdOptions)), ("lease_ms", c_int64)]


class EtcdProcessOptions(Structure):
    _fields_ = [("size", c_size_t), ("binary", c_char_p), ("data_dir", c_char_p), ("log_path", c_char_p),
                ("log_fd", c_int), ("port", c_int), ("timeout_ms", c_int64), ("tries", c_int), ("log", POINTER(Log))]


class ServerOptions(Structure):
    _fields_ = [("size", c_size_t), ("bind", c_char_p), ("port", c_int), ("listen_fd", c_int), ("log", POINTER(Log)),
                ("run_id", c_char_p), ("max_connections", c_size_t), ("max_key_bytes", c_size_t),
                ("max_value_bytes", c_size_t), ("max_keys", c_size_t), ("max_memory", c_size_t),
                ("request_timeout_ms", c_int64), ("idle_timeout_ms", c_int64), ("session_timeout_ms", c_int64),
                ("max_waits", c_size_t), ("secret_file", c_char_p), ("tls_cert", c_char_p), ("tls_key", c_char_p),
                ("tls_client_ca", c_char_p), ("allow_plain", c_char_p), ("state_dir", c_char_p), ("max_runs", c_size_t),
                ("max_run_memory", c_size_t), ("run_ttl_ms", c_int64), ("state_etcd", POINTER(EtcdOptions)),
                ("state_prefix", c_char_p), ("state_lease_ms", c_int64), ("advertise", c_char_p), ("renew_groups", c_bool)]


class EventStruct(Structure):
    _fields_ = [("time_us", c_int64), ("run_id", c_char_p), ("node", c_char_p), ("host", c_char_p), ("pid", c_int64),
                ("local_id", c_int64), ("round", c_int64), ("rank", c_int64), ("state", c_int), ("message", c_char_p)]


OnEvent = ctypes.CFUNCTYPE(None, c_void_p, POINTER(EventStruct))


class Params(Structure):
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("endpoint", c_char_p), ("run_id", c_char_p),
                ("min_nodes", c_int64), ("max_nodes", c_int64), ("conf", c_char_p), ("local_addr", c_char_p),
                ("cancel_fd", c_int), ("log", POINTER(Log)), ("on_event", OnEvent), ("event_user", c_void_p),
                ("registry", c_void_p), ("program", c_char_p), ("ignore_unknown", c_bool),
                ("find_master_later", c_bool), ("launcher", c_int), ("max_restarts", c_int64)]


class ParticipantStruct(Structure):
    _fields_ = [("node", c_char_p), ("addr", c_char_p), ("pid", c_int64), ("local_id", c_int64), ("rank", c_int64)]


class ResultStruct(Structure):
    _fields_ = [("round", c_int64), ("rank", c_int64), ("world_size", c_int64), ("run_id", c_char_p),
                ("backend", c_char_p), ("node", c_char_p), ("master_addr", c_char_p), ("master_port", c_int),
                ("store", c_void_p)]


class WorkerRanksStruct(Structure):
    _fields_ = [("base", c_int64), ("world_size", c_int64), ("role_base", c_int64), ("role_world_size", c_int64),
                ("restarts", c_int64)]


class NodeStatusStruct(Structure):
    _fields_ = [("node", c_char_p), ("kind", c_int), ("rank", c_int64), ("heartbeat_age_ms", c_int64), ("way", c_int),
                ("trip_us", c_int64)]


class StatusStruct(Structure):
    _fields_ = [("exists", c_bool), ("round", c_int64), ("phase", c_char_p), ("complete", c_bool), ("closed", c_bool),
                ("deadline_left_ms", c_int64), ("min_nodes", c_int64), ("max_nodes", c_int64),
                ("participants", c_size_t), ("waiting", c_size_t), ("spares", c_size_t), ("layout", c_char_p),
                ("reason", c_char_p), ("ended_us", c_int64), ("ended_by", c_char_p), ("died", c_bool)]


class AgentEventStruct(Structure):
    _fields_ = [("time_us", c_int64), ("state", c_int), ("run_id", c_char_p), ("role", c_char_p), ("round", c_int64),
                ("group_rank", c_int64), ("group_world_size", c_int64), ("restart_count", c_int64), ("pid", c_int64),
                ("message", c_char_p)]


class WorkerEventStruct(Structure):
    _fields_ = [("time_us", c_int64), ("state", c_int), ("run_id", c_char_p), ("role", c_char_p), ("round", c_int64),
                ("group_rank", c_int64), ("group_world_size", c_int64), ("restart_count", c_int64),
                ("local_rank", c_int64), ("rank", c_int64), ("pid", c_int64), ("exit_code", c_int),
                ("message", c_char_p)]


OnAgentEvent = ctypes.CFUNCTYPE(None, c_void_p, POINTER(AgentEventStruct))
OnWorkerEvent = ctypes.CFUNCTYPE(None, c_void_p, POINTER(WorkerEventStruct))


class AgentOptions(Structure):
    _fields_ = [("size", c_size_t), ("rendezvous", POINTER(Params)), ("standalone", c_bool),
                ("argv", POINTER(c_char_p)), ("nproc_per_node", c_char_p), ("role", c_char_p),
                ("max_restarts", c_int64), ("log_dir", c_char_p), ("redirects", c_char_p), ("tee", c_char_p),
                ("local_ranks_filter", c_char_p), ("line_prefix", c_char_p),
                ("duplicate_stdout_filters", c_char_p), ("duplicate_stderr_filters", c_char_p),
                ("shutdown_timeout_ms", c_int64),
                ("exit_barrier_timeout_ms", c_int64), ("on_agent", OnAgentEvent), ("on_worker", OnWorkerEvent),
                ("event_user", c_void_p), ("log", POINTER(Log)), ("virtual_local_rank", c_bool),
                ("numa_binding", c_char_p), ("adopt_orphans", c_bool), ("worker_descriptors", c_uint64),
                ("direct_master", c_bool)]


class FailureStruct(Structure):
    _fields_ = [("rank", c_int64), ("local_rank", c_int64), ("host", c_char_p), ("pid", c_int64), ("exit_code", c_int),
                ("signal", c_int), ("time_us", c_int64), ("message", c_char_p), ("log", c_char_p),
                ("error_file", c_char_p), ("attempt", c_int64)]


class AgentResultStruct(Structure):
    _fields_ = [("state", c_int), ("exit_code", c_int), ("restarts", c_int64), ("reason", c_char_p),
                ("log_dir", c_char_p), ("lost_bytes", c_uint64), ("lost_to", c_char_p)]


# ---- functions ----------------------------------------------------------------------------------------------------

OUT = POINTER(c_void_p)
FAIL = POINTER(ErrorStruct)
KEYS = POINTER(Bytes)
VALUE = POINTER(Value)
VALUES = POINTER(VALUE)
NUMBER = POINTER(c_int64)
COUNT = POINTER(c_size_t)
ANSWER = POINTER(c_bool)
TOKEN = POINTER(c_uint64)

# Name: what it returns, what it takes.
FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "error_text": (c_char_p, [c_int]),
    "value_free": (None, [VALUE]),
    "values_free": (None, [VALUE, c_size_t]),
    "store_open_hash": (c_int, [POINTER(HashOptions), OUT, FAIL]),
    "store_open_file": (c_int, [c_char_p, POINTER(FileOptions), OUT, FAIL]),
    "store_open_tcp": (c_int, [c_char_p, POINTER(TcpOptions), OUT, FAIL]),
    "store_open_etcd": (c_int, [c_char_p, POINTER(EtcdStoreOptions), OUT, FAIL]),
    "store_open_etcd3": (c_int, [c_char_p, POINTER(Etcd3StoreOptions), OUT, FAIL]),
    "store_open_prefix": (c_int, [c_void_p, Bytes, OUT, FAIL]),
    "store_clone": (c_int, [c_void_p, OUT, FAIL]),
    "store_clone_with": (c_int, [c_void_p, c_int, OUT, FAIL]),
    "store_free": (None, [c_void_p]),
    "store_cancel": (None, [c_void_p]),
    "store_set_timeout": (c_int, [c_void_p, c_int64, FAIL]),
    "store_get_timeout": (c_int64, [c_void_p]),
    "store_set_request_timeout": (c_int, [c_void_p, c_int64, FAIL]),
    "store_limit_calls": (None, [c_int64]),
    "thread_cancel_fd": (None, [c_int]),
    "store_features": (c_uint, [c_void_p]),
    "store_describe": (c_char_p, [c_void_p]),
    "store_set": (c_int, [c_void_p, Bytes, Bytes, FAIL]),
    "store_get": (c_int, [c_void_p, Bytes, VALUE, FAIL]),
    "store_add": (c_int, [c_void_p, Bytes, c_int64, NUMBER, FAIL]),
    "store_compare_set": (c_int, [c_void_p, Bytes, Bytes, Bytes, VALUE, FAIL]),
    "store_check": (c_int, [c_void_p, KEYS, c_size_t, ANSWER, FAIL]),
    "store_wait": (c_int, [c_void_p, KEYS, c_size_t, c_int64, FAIL]),
    "store_delete_key": (c_int, [c_void_p, Bytes, ANSWER, FAIL]),
    "store_num_keys": (c_int, [c_void_p, NUMBER, FAIL]),
    "store_append": (c_int, [c_void_p, Bytes, Bytes, FAIL]),
    "store_multi_get": (c_int, [c_void_p, KEYS, c_size_t, VALUES, FAIL]),
    "store_multi_set": (c_int, [c_void_p, KEYS, KEYS, c_size_t, FAIL]),
    "store_publish": (c_int, [c_void_p, KEYS, KEYS, c_size_t, FAIL]),
    "store_list_keys": (c_int, [c_void_p, VALUES, COUNT, FAIL]),
    "store_queue_push": (c_int, [c_void_p, Bytes, Bytes, FAIL]),
    "store_queue_pop": (c_int, [c_void_p, Bytes, c_bool, VALUE, FAIL]),
    "store_queue_len": (c_int, [c_void_p, Bytes, NUMBER, FAIL]),
    "store_get_version": (c_int, [c_void_p, Bytes, VALUE, TOKEN, FAIL]),
    "store_compare_set_version": (c_int, [c_void_p, Bytes, c_uint64, Bytes, ANSWER, VALUE, TOKEN, FAIL]),
    "store_wait_changed": (c_int, [c_void_p, Bytes, c_uint64, c_int64, VALUE, TOKEN, FAIL]),
    "server_open": (c_int, [POINTER(ServerOptions), OUT, FAIL]),
    "server_address": (c_char_p, [c_void_p]),
    "server_port": (c_int, [c_void_p]),
    "server_start": (c_int, [c_void_p, FAIL]),
    "server_run": (c_int, [c_void_p, FAIL]),
    "server_stop": (None, [c_void_p]),
    "server_reload": (None, [c_void_p]),
    "server_drain": (None, [c_void_p, c_int64]),
    "server_free": (None, [c_void_p]),
    "handler_open": (c_int, [POINTER(Params), OUT, FAIL]),
    "handler_open_url": (c_int, [c_char_p, POINTER(Params), OUT, FAIL]),
    "handler_free": (None, [c_void_p]),
    "handler_node": (c_char_p, [c_void_p]),
    "handler_describe": (c_char_p, [c_void_p]),
    "handler_next": (c_int, [c_void_p, OUT, FAIL]),
    "handler_set_workers": (c_int, [c_void_p, c_char_p, c_int64, c_int64, FAIL]),
    "handler_find_master": (c_int, [c_void_p, c_void_p, FAIL]),
    "handler_wait_change": (c_int, [c_void_p, c_int64, OUT, FAIL]),
    "handler_change_fd": (c_int, [c_void_p]),
    "handler_ended_fd": (c_int, [c_void_p]),
    "handler_is_closed": (c_int, [c_void_p, ANSWER, FAIL]),
    "handler_num_nodes_waiting": (c_int, [c_void_p, NUMBER, FAIL]),
    "handler_set_closed": (c_int, [c_void_p, c_char_p, FAIL]),
    "handler_leave": (c_int, [c_void_p, FAIL]),
    "handler_shutdown": (c_int, [c_void_p, FAIL]),
    "handler_set_close_timeout": (c_int, [c_void_p, c_int64, FAIL]),
    "handler_set_linger": (c_int, [c_void_p, c_int64, FAIL]),
    "handler_cancel": (None, [c_void_p]),
    "handler_status": (c_int, [c_void_p, c_int64, OUT, FAIL]),
    "handler_set_extra": (c_int, [c_void_p, c_char_p, c_char_p, FAIL]),
    "handler_get_extra": (c_int, [c_void_p, c_char_p, c_int64, VALUE, FAIL]),
    "result_load_participants": (c_int, [c_void_p, FAIL]),
    "result_participant": (POINTER(ParticipantStruct), [c_void_p, c_int64]),
    "result_worker_ranks": (POINTER(WorkerRanksStruct), [c_void_p]),
    "result_free": (None, [c_void_p]),
    "change_what": (c_uint, [c_void_p]),
    "change_node_count": (c_size_t, [c_void_p]),
    "change_node": (c_char_p, [c_void_p, c_size_t]),
    "change_free": (None, [c_void_p]),
    "status_node_count": (c_size_t, [c_void_p]),
    "status_node": (POINTER(NodeStatusStruct), [c_void_p, c_size_t]),
    "status_free": (None, [c_void_p]),
    "runs_list": (c_int, [POINTER(Params), VALUES, COUNT, FAIL]),
    "runs_remove": (c_int, [POINTER(Params), COUNT, FAIL]),
    "etcd_process_start": (c_int, [POINTER(EtcdProcessOptions), OUT, FAIL]),
    "etcd_process_endpoint": (c_char_p, [c_void_p]),
    "etcd_process_port": (c_int, [c_void_p]),
    "etcd_process_pid": (c_int64, [c_void_p]),
    "etcd_process_free": (None, [c_void_p]),
    "agent_open": (c_int, [POINTER(AgentOptions), OUT, FAIL]),
    "agent_run": (c_int, [c_void_p, OUT, FAIL]),
    "agent_stop": (None, [c_void_p, c_int]),
    "agent_free": (None, [c_void_p]),
    "agent_result_failure_count": (c_size_t, [c_void_p]),
    "agent_result_failure": (POINTER(FailureStruct), [c_void_p, c_size_t]),
    "agent_failed_attempt_count": (c_size_t, [c_void_p]),
    "agent_failed_attempt": (POINTER(FailureStruct), [c_void_p, c_size_t]),
    "agent_result_free": (None, [c_void_p]),
    "agent_state_name": (c_char_p, [c_int]),
    "worker_state_name": (c_char_p, [c_int]),
    "node_state_name": (c_char_p, [c_int]),
}


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, "rdzv_" + name)
        function.restype, function.argtypes = result, arguments
    return library


library = declare(load())
