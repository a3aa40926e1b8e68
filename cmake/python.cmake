# The Python package: what `make install` installs of it, and the two programs that `make wheel` puts into a wheel.
find_program(RDZV_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(RDZV_PYTHON python3)

# The library beside its own libuv, Jansson and SQLite: Debian's static ones cannot be part of a shared library.
add_library(rdzv_bundled SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:rdzv_objects>)
set_target_properties(rdzv_bundled PROPERTIES OUTPUT_NAME rdzv SOVERSION ${rdzv_abi} BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bundled
  LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/rdzv.map)
target_link_options(rdzv_bundled PRIVATE -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/rdzv.map -Wl,--disable-new-dtags)
target_link_libraries(rdzv_bundled PRIVATE rdzv_flags PkgConfig::UV PkgConfig::JANSSON ${rdzv_sqlite} ${CMAKE_DL_LIBS}
  Threads::Threads m)

# The command with all of them inside: it is installed to the bin folder of an environment, away from the package.
find_library(UV_ARCHIVE NAMES libuv_a.a libuv.a)
find_library(JANSSON_ARCHIVE NAMES libjansson.a)
if(RDZV_STATE_DIR)
  find_library(SQLITE_ARCHIVE NAMES libsqlite3.a)
endif()
if(UV_ARCHIVE AND JANSSON_ARCHIVE AND (SQLITE_ARCHIVE OR NOT RDZV_STATE_DIR))
  add_executable(rdzv_bundled_command EXCLUDE_FROM_ALL ${cli_sources} $<TARGET_OBJECTS:rdzv_objects>)
  set_target_properties(rdzv_bundled_command PROPERTIES OUTPUT_NAME rdzv
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bundled)
  target_include_directories(rdzv_bundled_command PRIVATE include src ${JANSSON_INCLUDE_DIRS} ${UV_INCLUDE_DIRS})
  target_link_libraries(rdzv_bundled_command PRIVATE rdzv_flags ${UV_ARCHIVE} ${JANSSON_ARCHIVE} ${SQLITE_ARCHIVE}
    ${CMAKE_DL_LIBS} Threads::Threads m)
endif()

if(NOT RDZV_INSTALL OR NOT RDZV_PYTHON)
  return()
endif()
execute_process(COMMAND ${RDZV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/python-package site ${CMAKE_INSTALL_PREFIX}
  OUTPUT_VARIABLE rdzv_python_site OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
# Below the prefix, so that `cmake --install --prefix` moves it, too.
file(RELATIVE_PATH rdzv_python_site ${CMAKE_INSTALL_PREFIX} ${rdzv_python_site})
file(RELATIVE_PATH rdzv_python_library ${CMAKE_INSTALL_PREFIX}/${rdzv_python_site}/rdzv
  ${CMAKE_INSTALL_FULL_LIBDIR}/librdzv.so.${rdzv_abi})
set(python_folder ${CMAKE_CURRENT_BINARY_DIR}/python-installed)
execute_process(COMMAND ${RDZV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/python-package describe ${python_folder}
  ${rdzv_python_library} COMMAND_ERROR_IS_FATAL ANY)
install(DIRECTORY python/rdzv DESTINATION ${rdzv_python_site} FILES_MATCHING PATTERN "*.py" PATTERN "py.typed"
  PATTERN "__pycache__" EXCLUDE PATTERN ".mypy_cache" EXCLUDE)
install(FILES python/rdzv_torch_hook.py python/rdzv-torch.pth DESTINATION ${rdzv_python_site})
install(FILES ${python_folder}/_installed.py DESTINATION ${rdzv_python_site}/rdzv)
install(DIRECTORY ${python_folder}/rdzv-${PROJECT_VERSION}.dist-info DESTINATION ${rdzv_python_site})
