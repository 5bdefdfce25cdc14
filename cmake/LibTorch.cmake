# Gives the imported target qft::torch from either a LibTorch directory (an unpacked official zip) or the
# torch folder of a Python wheel, without TorchConfig.cmake: that wants a toolkit even for CPU builds, and probes GPUs.
set(QFT_TORCH_DIR "" CACHE PATH "LibTorch: the folder that holds include/ and lib/")
if(NOT QFT_TORCH_DIR)
  file(GLOB _wheel "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  foreach(_dir IN LISTS _wheel)
    if(EXISTS "${_dir}/lib/libtorch_cpu.so")
      set(QFT_TORCH_DIR "${_dir}" CACHE PATH "LibTorch: the folder that holds include/ and lib/" FORCE)
    endif()
  endforeach()
endif()
if(NOT EXISTS "${QFT_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found in QFT_TORCH_DIR='${QFT_TORCH_DIR}': run scripts/setup.sh, "
                      "or pass -DQFT_TORCH_DIR=<folder with include/ and lib/ of LibTorch>")
endif()

add_library(qft_torch INTERFACE)
target_include_directories(qft_torch SYSTEM INTERFACE "${QFT_TORCH_DIR}/include"
                           "${QFT_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(qft_torch INTERFACE "${QFT_TORCH_DIR}/lib/libtorch_cpu.so" "${QFT_TORCH_DIR}/lib/libc10.so")
# at::parallel_for is a header template: without -fopenmp in our own units it would run on one thread.
# We link the libgomp that LibTorch ships, so that the process holds one thread pool.
target_compile_options(qft_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
file(GLOB _gomp "${QFT_TORCH_DIR}/lib/libgomp*.so*")
if(_gomp)
  list(GET _gomp 0 _gomp)
  target_link_libraries(qft_torch INTERFACE "${_gomp}")
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(qft_torch INTERFACE OpenMP::OpenMP_CXX)
endif()
# LibTorch ships headers of its own fmt version, which hide the system's, without the compiled part: it is compiled here.
add_library(qft_torch_fmt STATIC "${CMAKE_SOURCE_DIR}/cmake/torch_fmt.cpp")
set_target_properties(qft_torch_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)  # back ends are shared objects
target_include_directories(qft_torch_fmt SYSTEM PRIVATE "${QFT_TORCH_DIR}/include")
target_link_libraries(qft_torch INTERFACE qft_torch_fmt)
target_link_options(qft_torch INTERFACE "-Wl,-rpath,${QFT_TORCH_DIR}/lib")
add_library(qft::torch ALIAS qft_torch)
