# share/qft/jieba of the build: jieba's dictionary and its tables of unknown words, out of the Python package (MIT license, named in
# METADATA) that scripts/setup.sh puts into .venv. Without it ROUGE counts Chinese characters, and says so.
file(GLOB QFT_JIEBA_FILES CONFIGURE_DEPENDS LIST_DIRECTORIES false "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/jieba/dict.txt"
     "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/jieba/finalseg/prob_*.py"
     "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/jieba-*.dist-info/METADATA")
foreach(_file IN LISTS QFT_JIEBA_FILES)
  string(REGEX REPLACE "^.*/(jieba|jieba-[^/]*)/" "" _name "${_file}")
  configure_file("${_file}" "${CMAKE_BINARY_DIR}/share/qft/jieba/${_name}" COPYONLY)
endforeach()
if(NOT QFT_JIEBA_FILES)
  message(STATUS "jieba is not in .venv (scripts/setup.sh): ROUGE will count Chinese characters")
endif()
