# SPDX-License-Identifier: MIT
# What `make install` copies: header, libraries, pkg-config file, CMake package. The program and its
# man page are installed by cli/.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/moeflux DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libmoeflux-dev)
install(FILES LICENSE README.md cmake/deb/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT moeflux OPTIONAL)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT moeflux OPTIONAL)

set_target_properties(moeflux_shared PROPERTIES EXPORT_NAME moeflux)
set(MF_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/moeflux)
install(TARGETS moeflux_shared EXPORT moefluxSharedTargets 
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libmoeflux0 NAMELINK_COMPONENT libmoeflux-dev)
install(TARGETS moeflux_static EXPORT moefluxStaticTargets 
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libmoeflux-dev)
install(EXPORT moefluxSharedTargets NAMESPACE moeflux:: DESTINATION ${MF_CMAKE_DIR}
  COMPONENT libmoeflux-dev)
install(EXPORT moefluxStaticTargets NAMESPACE moeflux:: DESTINATION ${MF_CMAKE_DIR}
  COMPONENT libmoeflux-dev)
configure_package_config_file(cmake/moefluxConfig.cmake.in ${CMAKE_BINARY_DIR}/moefluxConfig.cmake
  INSTALL_DESTINATION ${MF_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moefluxConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moefluxConfig.cmake ${CMAKE_BINARY_DIR}/moefluxConfigVersion.cmake
  DESTINATION ${MF_CMAKE_DIR} COMPONENT libmoeflux-dev)

# The pkg-config file finds its prefix from its own place, so that a tree may be moved or staged.
# GNUInstallDirs allows absolute directories too; those stay as they are.
set(MF_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR is_absolute)
if(NOT is_absolute)
  set(up ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  string(REGEX REPLACE "[^/]+" ".." up ${up})
  set(MF_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${dir} is_absolute)
  if(is_absolute)
    set(MF_PC_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(MF_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
set(MF_PC_REQUIRES_PRIVATE "libpcre2-8 libutf8proc")
if(LIBURING_FOUND)
  string(APPEND MF_PC_REQUIRES_PRIVATE " liburing")
endif()
configure_file(cmake/moeflux.pc.in ${CMAKE_BINARY_DIR}/moeflux.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/moeflux.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libmoeflux-dev)

# `make uninstall`: what the last installation wrote, by its own list.
add_custom_target(uninstall
  COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake)
