# What `make install` installs: library, command, headers, the CMake package, the pkg-config file, documents.
if(NOT RDZV_INSTALL)
  return()
endif()

install(TARGETS rdzv_command rdzv_shared rdzv_static EXPORT rdzv-targets)
install(DIRECTORY include/rdzv TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT rdzv-targets NAMESPACE rdzv:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rdzv)
configure_package_config_file(cmake/rdzv-config.cmake.in rdzv-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rdzv)
write_basic_package_version_file(rdzv-config-version.cmake COMPATIBILITY ${rdzv_compatibility})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rdzv-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/rdzv-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rdzv)

# The file finds its prefix from where it is, so an installed copy may be moved. libuv has a name of its own for its
# static library. The loader looks below /usr and /usr/local by itself; for another prefix programs get a run path.
file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
pkg_check_modules(UV_STATIC QUIET libuv-static)
set(pc_libuv libuv)
if(UV_STATIC_FOUND)
  set(pc_libuv libuv-static)
endif()
set(pc_sqlite "")
if(RDZV_STATE_DIR)
  set(pc_sqlite ", sqlite3 >= 3.37")
endif()
set(pc_rpath "")
if(NOT CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
  set(pc_rpath " -Wl,-rpath,\${libdir}")
endif()
configure_file(cmake/rdzv.pc.in rdzv.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rdzv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES man/rdzv.1 man/rdzv-close.1 man/rdzv-etcd.1 man/rdzv-join.1 man/rdzv-list.1 man/rdzv-reset.1 man/rdzv-run.1 man/rdzv-serve.1
  man/rdzv-status.1 man/rdzv-store.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES man/librdzv.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
# The pages that `make reference` makes, if it was called.
install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/reference/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL
  FILES_MATCHING PATTERN "rdzv_*.3")
install(FILES completions/rdzv.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME rdzv)
install(FILES completions/_rdzv DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES completions/rdzv.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
