# SPDX-License-Identifier: MIT
# Packages by CPack: `cpack -G DEB` gives libmoeflux0, libmoeflux-dev, moeflux and moeflux-server,
# `cpack -G TXZ` one tree that may be put anywhere. tools/build_packages.sh does both, so that the same
# sources give the same bytes.
set(CPACK_PACKAGE_NAME moeflux)
set(CPACK_PACKAGE_VENDOR moeflux)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs Mixture-of-Experts language models larger than memory")
# The project has no address that takes mail; the name says so (RFC 2606).
set(CPACK_PACKAGE_CONTACT "The moeflux authors <noreply@moeflux.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL libmoeflux0 libmoeflux-dev moeflux)
if(TARGET mf_server)
  list(APPEND CPACK_COMPONENTS_ALL moeflux-server)
endif()
# What Debian wants beside the files: copyright, changelog, compressed pages.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_stage.cmake)
set(CPACK_MOEFLUX_SOURCE ${CMAKE_SOURCE_DIR})

string(REPLACE ";" "-" processor "${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_FILE_NAME moeflux-${PROJECT_VERSION}-linux-${processor})
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

# mf_deb(COMPONENT SECTION DEPENDS DESCRIPTION)
macro(mf_deb component section depends description)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${component})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}") # behind the summary
endmacro()
set(exactly "(= ${PROJECT_VERSION}-1)")
mf_deb(moeflux misc "" "The program: answers, chats, serves, converts and measures models whose
experts are read from disk as the router asks for them, under a memory
budget that is kept.")
mf_deb(libmoeflux0 libs "" "The shared library, for programs that are linked with it.")
mf_deb(libmoeflux-dev libdevel "libmoeflux0 ${exactly}, libpcre2-dev, libutf8proc-dev, liburing-dev"
  "Headers for C and C++, the static library, and files for pkg-config and CMake.")
mf_deb(moeflux-server net "moeflux ${exactly}, systemd"
  "Units of systemd that serve models of /var/lib/moeflux over HTTP with the
APIs of OpenAI and Anthropic, each as a user of its own without a network.")
# Whoever links the library depends on its package; the dynamic linker learns of it.
set(CPACK_DEBIAN_LIBMOEFLUX0_PACKAGE_CONTROL_EXTRA
  "${CMAKE_SOURCE_DIR}/cmake/deb/shlibs;${CMAKE_SOURCE_DIR}/cmake/deb/triggers")
set(CPACK_DEBIAN_MOEFLUX-SERVER_PACKAGE_CONTROL_EXTRA
  "${CMAKE_SOURCE_DIR}/cmake/deb/postinst;${CMAKE_SOURCE_DIR}/cmake/deb/prerm;${CMAKE_SOURCE_DIR}/cmake/deb/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
