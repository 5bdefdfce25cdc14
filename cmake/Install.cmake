# cmake --install BUILD --prefix DIR: bin/ with the programs, share/qft/ with what a user copies from, share/doc/qft/.
include(GNUInstallDirs)

set(_programs "")
foreach(_program qft qft-pack qft-ckpt)
  if(TARGET ${_program})
    list(APPEND _programs ${_program})
  endif()
endforeach()
if(_programs)
  # LibTorch stays where it is, or is copied to DIR/lib; libraries outside the system's folders keep their path too.
  set_target_properties(${_programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${QFT_TORCH_DIR}/lib"
                        INSTALL_RPATH_USE_LINK_PATH TRUE)
  install(TARGETS ${_programs} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

get_property(_backends GLOBAL PROPERTY QFT_BACKENDS)
foreach(_backend IN LISTS _backends)
  set_target_properties(${_backend} PROPERTIES INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};${QFT_TORCH_DIR}/lib"
                        INSTALL_RPATH_USE_LINK_PATH TRUE)
  install(TARGETS ${_backend} LIBRARY DESTINATION lib/qft)  # where the programs look for them
endforeach()

install(PROGRAMS apps/qft-run DESTINATION "${CMAKE_INSTALL_BINDIR}")

set(_share "${CMAKE_INSTALL_DATADIR}/qft")
foreach(_folder configs slurm pbs k8s containers examples)
  if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/${_folder}")
    install(DIRECTORY "${_folder}" DESTINATION "${_share}" USE_SOURCE_PERMISSIONS PATTERN "__pycache__" EXCLUDE)
  endif()
endforeach()
if(QFT_JIEBA_FILES)
  install(DIRECTORY "${CMAKE_BINARY_DIR}/share/qft/jieba" DESTINATION "${_share}")
endif()
install(PROGRAMS scripts/run-ssh.sh DESTINATION "${_share}/scripts")
install(FILES scripts/python/build.txt scripts/python/cuda.txt DESTINATION "${_share}/python")  # which LibTorch pip takes
if(IS_DIRECTORY "${CMAKE_SOURCE_DIR}/docs")
  install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}")
endif()
install(FILES README.md CHANGELOG.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
