# qft_module(NAME [DEPS modules...] [LIBS targets...] [TORCH] [ALONE])
# One static library a module: sources src/NAME/*.cpp, headers include/qft/NAME/*.h, tests tests/NAME/*_test.cpp.
# DEPS is the module's row of the layering table: what its files include, no more and no less, as the layering test sees to.
# TORCH: it sees LibTorch's headers. ALONE: its sources are never compiled together: qft-ckpt takes
# those that need no LibTorch, and Highway includes a kernel's own file by name.
set_property(GLOBAL PROPERTY QFT_MODULE_TABLE "")

# qft_precompile(NAME HEADERS files... LIBS targets...): precompiled headers that other targets take by REUSE_FROM.
function(qft_precompile name)
  cmake_parse_arguments(P "" "" "HEADERS;LIBS" ${ARGN})
  if(QFT_PCH)
    file(WRITE "${CMAKE_BINARY_DIR}/${name}.cpp" "")
    add_library(${name} OBJECT "${CMAKE_BINARY_DIR}/${name}.cpp")
    target_link_libraries(${name} PRIVATE ${P_LIBS} qft_warnings fmt::fmt)
    target_precompile_headers(${name} PRIVATE ${P_HEADERS})
  endif()
endfunction()

# qft_together(TARGET): its sources are compiled several at a time, QFT_UNITY of them.
function(qft_together target)
  if(QFT_UNITY GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${QFT_UNITY})
    # Every source is an included one here, and with more of them in sight GCC 12 sees overruns of short strings that are none.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
endfunction()

# qft_layering_row("module NAME" | "program FOLDER" DEPS...)
function(qft_layering_row name)
  string(JOIN " " row ${ARGN})  # one list element a row
  set_property(GLOBAL APPEND PROPERTY QFT_MODULE_TABLE "${name}: ${row}")
endfunction()

function(qft_module name)
  cmake_parse_arguments(M "TORCH;ALONE" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.cpp")
  qft_layering_row("module ${name}" ${M_DEPS})
  if(NOT sources)
    add_library(qft_${name} INTERFACE)
    set(kind INTERFACE)
  else()
    add_library(qft_${name} STATIC ${sources})
    set(kind PUBLIC)
    target_link_libraries(qft_${name} PRIVATE qft_warnings)
    if(NOT M_ALONE)
      qft_together(qft_${name})
    endif()
    if(M_TORCH AND QFT_PCH)
      target_precompile_headers(qft_${name} REUSE_FROM qft_pch)
    endif()
  endif()
  add_library(qft::${name} ALIAS qft_${name})
  target_include_directories(qft_${name} ${kind} "${CMAKE_SOURCE_DIR}/include")
  if(M_TORCH)
    target_link_libraries(qft_${name} ${kind} qft::torch)
  endif()
  foreach(dep IN LISTS M_DEPS)
    target_link_libraries(qft_${name} ${kind} qft::${dep})
  endforeach()
  target_link_libraries(qft_${name} ${kind} ${M_LIBS})
endfunction()

# qft_program(NAME SOURCES files... DEPS modules... [FOLDER folder] [LIBS targets...] [TORCH])
# A thin program. DEPS is the row of the layering table for the files of FOLDER (by default the folder of the call). LIBS are linked
# before the modules.
function(qft_program name)
  cmake_parse_arguments(P "TORCH" "FOLDER" "SOURCES;DEPS;LIBS" ${ARGN})
  file(RELATIVE_PATH folder "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${P_FOLDER}")
  qft_layering_row("program ${folder}" ${P_DEPS})
  add_executable(${name} ${P_SOURCES})
  list(TRANSFORM P_DEPS PREPEND qft::)
  target_link_libraries(${name} PRIVATE ${P_LIBS} ${P_DEPS} Boost::program_options qft_warnings)
  if(P_TORCH AND QFT_PCH)
    target_precompile_headers(${name} REUSE_FROM qft_pch)
  endif()
endfunction()

function(qft_write_module_table file)
  get_property(rows GLOBAL PROPERTY QFT_MODULE_TABLE)
  list(JOIN rows "\n" text)
  string(REPLACE ";" " " text "${text}")
  file(WRITE "${file}" "${text}\n")
endfunction()

# QFT_BACKEND_ABI: what a back end must share with the programs that load it, as a text: the headers of its table, and LibTorch. For
# the sources that state or compare it.
set(_abi "")
foreach(_header include/qft/core/dtype.h include/qft/device/backend.h include/qft/device/graph.h include/qft/comm/collective_library.h
                include/qft/ops/kernel_args.h src/ops/common/device_kernels.h src/optim/device_kernels.h)
  set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${_header}")
  file(SHA256 "${CMAKE_SOURCE_DIR}/${_header}" _digest)
  string(APPEND _abi "${_digest}")
endforeach()
file(STRINGS "${QFT_TORCH_DIR}/include/torch/csrc/api/include/torch/version.h" _torch_version REGEX "define TORCH_VERSION ")
string(APPEND _abi "${_torch_version}")
string(SHA256 _abi "${_abi}")
string(SUBSTRING "${_abi}" 0 16 QFT_BACKEND_ABI)

# qft_backend(NAME DEPS modules... LIBS targets...): the shared object of a kind of accelerator, or of files, from src/NAME, beside the programs. It
# sees the headers of DEPS and is linked with none of our libraries, whose state it would have a second copy of.
function(qft_backend name)
  cmake_parse_arguments(B "" "WHEN" "DEPS;LIBS" ${ARGN})
  qft_layering_row("module ${name}" ${B_DEPS})
  if(NOT B_WHEN)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/${name}/*.cpp" "${CMAKE_SOURCE_DIR}/src/${name}/*.cu")
  add_library(qft_${name} SHARED ${sources})
  set_property(GLOBAL APPEND PROPERTY QFT_BACKENDS qft_${name})
  target_include_directories(qft_${name} PRIVATE "${CMAKE_SOURCE_DIR}/include")
  target_link_libraries(qft_${name} PRIVATE ${B_LIBS} qft_warnings)
  target_compile_definitions(qft_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:QFT_BACKEND_ABI="${QFT_BACKEND_ABI}">)
  target_link_options(qft_${name} PRIVATE -Wl,--no-undefined)
  set_target_properties(qft_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
                        CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
endfunction()
