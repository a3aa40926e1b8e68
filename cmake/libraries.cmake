# The two libraries, from the same objects. Both export the functions that a public header marks with RDZV_API, and
# nothing else.

# The soname names the versions that a program keeps working with: one minor version before 1.0, one major version
# from 1.0 on. The CMake package and the version of the symbols say the same.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(rdzv_abi 0.${PROJECT_VERSION_MINOR})
  set(rdzv_compatibility SameMinorVersion)
else()
  set(rdzv_abi ${PROJECT_VERSION_MAJOR})
  set(rdzv_compatibility SameMajorVersion)
endif()
configure_file(cmake/rdzv.map.in rdzv.map @ONLY)

add_library(rdzv_shared SHARED $<TARGET_OBJECTS:rdzv_objects>)
set_target_properties(rdzv_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${rdzv_abi}
  LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/rdzv.map)
target_link_options(rdzv_shared PRIVATE -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/rdzv.map)

# In an archive of many objects, the names by which they know each other are visible to the program: a program with a
# function of the same name would be called by the library. One object has them as its own.
set(rdzv_object ${CMAKE_CURRENT_BINARY_DIR}/rdzv${CMAKE_C_OUTPUT_EXTENSION})
add_custom_command(OUTPUT ${rdzv_object}
  COMMAND ${CMAKE_LINKER} -r -o ${rdzv_object} $<TARGET_OBJECTS:rdzv_objects>
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${rdzv_object}
  DEPENDS rdzv_objects $<TARGET_OBJECTS:rdzv_objects> COMMAND_EXPAND_LISTS VERBATIM)
add_library(rdzv_static STATIC ${rdzv_object})
set_target_properties(rdzv_static PROPERTIES LINKER_LANGUAGE C)
set_source_files_properties(${rdzv_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)

foreach(kind SHARED STATIC)
  string(TOLOWER rdzv_${kind} name)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME rdzv EXPORT_NAME ${kind})
  target_include_directories(${name} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:rdzv_flags> PkgConfig::UV PkgConfig::JANSSON ${rdzv_sqlite} ${CMAKE_DL_LIBS}
    Threads::Threads m)
  add_library(rdzv::${kind} ALIAS ${name}) # the names of the installed package, for users of add_subdirectory
endforeach()
add_library(rdzv::rdzv ALIAS rdzv_shared)
