# Man pages, completions for bash and the page of all keys. The built programs write them, so they always fit the programs.
include(GNUInstallDirs)

if(CMAKE_CROSSCOMPILING)
  message(STATUS "Man pages, completions and keys.md are left out: programs of a cross build do not run here")
  return()
endif()

# qft_help_text(PROGRAM TOPIC FILE DESTINATION): `PROGRAM help TOPIC` writes FILE of the build folder; it is installed to DESTINATION.
function(qft_help_text program topic file destination)
  set(path "${CMAKE_BINARY_DIR}/${file}")
  get_filename_component(folder "${path}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  # The builder's own machines and devices stay out. A rename at the end: a failure leaves no half of a file.
  add_custom_command(OUTPUT "${path}"
    COMMAND "${CMAKE_COMMAND}" -E env --unset=QFT_MACHINES --unset=QFT_DEVICE ASAN_OPTIONS=detect_leaks=0
            $<TARGET_FILE:${program}> help ${topic} > "${path}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename "${path}.new" "${path}"
    DEPENDS ${program} ${ARGN} COMMENT "${program} help ${topic}" VERBATIM)
  set_property(GLOBAL APPEND PROPERTY QFT_HELP_TEXTS "${path}")
  install(FILES "${path}" DESTINATION "${destination}")
endfunction()

file(GLOB _machines CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/configs/machines/*")
foreach(_program qft qft-pack qft-ckpt)
  if(TARGET ${_program})
    qft_help_text(${_program} man share/man/man1/${_program}.1 "${CMAKE_INSTALL_MANDIR}/man1")
    qft_help_text(${_program} bash share/bash-completion/completions/${_program}
                  "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" ${_machines})
  endif()
endforeach()
if(TARGET qft)
  qft_help_text(qft keys share/doc/qft/keys.md "${CMAKE_INSTALL_DOCDIR}")
endif()
get_property(_texts GLOBAL PROPERTY QFT_HELP_TEXTS)
add_custom_target(qft_help_texts ALL DEPENDS ${_texts})
