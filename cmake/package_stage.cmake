# SPDX-License-Identifier: MIT
# Run by CPack before a package is made of what was installed: each Debian package gets its copyright
# and changelog, pages are compressed, and all times are SOURCE_DATE_EPOCH where that is set.
find_program(gzip gzip REQUIRED)
set(stage ${CPACK_TEMPORARY_DIRECTORY})
if(CPACK_GENERATOR STREQUAL "DEB")
  foreach(component ${CPACK_COMPONENTS_ALL})
    set(doc ${stage}/${component}/usr/share/doc/${component})
    file(MAKE_DIRECTORY ${doc})
    file(COPY_FILE ${CPACK_MOEFLUX_SOURCE}/cmake/deb/copyright ${doc}/copyright)
    file(COPY_FILE ${CPACK_MOEFLUX_SOURCE}/CHANGELOG.md ${doc}/changelog)
    file(COPY_FILE ${CPACK_MOEFLUX_SOURCE}/cmake/deb/changelog ${doc}/changelog.Debian)
    file(REMOVE ${stage}/${component}/usr/share/doc/${component}/LICENSE)
    file(GLOB pages ${stage}/${component}/usr/share/man/man*/*)
    execute_process(COMMAND ${gzip} -9nf ${doc}/changelog ${doc}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endif()
execute_process(COMMAND chmod -R u=rwX,go=rX ${stage} COMMAND_ERROR_IS_FATAL ANY)
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find ${stage} -exec touch -h -d @$ENV{SOURCE_DATE_EPOCH} {} +
    COMMAND_ERROR_IS_FATAL ANY)
endif()
