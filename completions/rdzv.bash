# SPDX-License-Identifier: BSD-3-Clause
# bash completion for rdzv
_rdzv() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
  local words='' rendezvous='--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --event-log --log-level
    --secret-file --tls-ca --tls-cert --tls-key'
  # "--option=value" comes in three words, since bash breaks words at "=".
  if [ "$cur" = "=" ]; then
    cur=''
  elif [ "$prev" = "=" ] && [ "$COMP_CWORD" -gt 2 ]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="run join status close list reset etcd serve store --help --version"
  elif [[ $command == join || $command == run ]] && [[ " ${COMP_WORDS[*]:2:COMP_CWORD-2} " == *" -- "* ]]; then
    mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
    return
  else
    case "$prev" in
      --port-file | --file | --event-log | --log | --binary | --cacert | --cert | --key | --secret-file | --tls-ca | --tls-cert | \
        --tls-key | --tls-client-ca | --etcd-cacert | --etcd-cert | --etcd-key)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
      --data-dir | --log-dir | --state-dir)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
      --log-level) words="off error warning info debug" ;;
      --dialect) words="auto v1 v2 rdzv" ;;
      --rdzv-backend) words="c10d etcd etcd-v1 etcd-v2 etcd-v3 static" ;;
      --nproc-per-node) words="auto cpu gpu xpu" ;;
      --start-method) words="spawn fork forkserver" ;;
      --numa-binding) words="node socket exclusive core-complex" ;;
      *)
        case "$command" in
          run)
            if [[ $cur != -* ]]; then
              mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
              return
            fi
            words="$rendezvous --nnodes --nproc-per-node --role --max-restarts --standalone --local-addr --node-rank
              --master-addr --master-port --module --no-python --run-path --signals-to-handle --shutdown-timeout
              --exit-barrier-timeout --log-dir --redirects --tee --local-ranks-filter --json-log --monitor-interval
              --start-method --logs-specs --event-log-handler --virtual-local-rank --numa-binding
              --log-line-prefix-template --duplicate-stdout-filters --duplicate-stderr-filters --direct-master --help --"
            ;;
          join) words="$rendezvous --nnodes --local-addr --once --help --" ;;
          status) words="$rendezvous --json --watch --help" ;;
          close) words="$rendezvous --reason --help" ;;
          list) words="--rdzv-backend --rdzv-endpoint --rdzv-conf --secret-file --tls-ca --tls-cert --tls-key --log-level --json --help" ;;
          reset) words="--rdzv-backend --rdzv-endpoint --rdzv-conf --secret-file --tls-ca --tls-cert --tls-key --log-level --rdzv-id --force --help" ;;
          etcd) words="--data-dir --port --port-file --log --binary --timeout --log-level --help start" ;;
          serve)
            words="--bind --port --port-file --state-dir --state-etcd --state-prefix --state-lease --advertise
              --etcd-cacert --etcd-cert --etcd-key --max-connections --max-key-bytes --max-value-bytes --max-keys --max-waits --max-memory
              --max-runs --max-run-memory --run-ttl
              --request-timeout --idle-timeout --secret-file --tls-cert --tls-key --tls-client-ca --allow-plain --log-level --json-log --help"
            ;;
          store)
            words="--rdzv-endpoint --file --etcd --etcd3 --cacert --cert --key --secret-file --tls-ca --tls-cert --tls-key --prefix --timeout --dialect --json --raw --log-level --help
              set get add cas check wait delete append keys num-keys mget mset"
            ;;
        esac
        ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _rdzv rdzv
