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
if(QFT_CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(NOT EXISTS "${QFT_TORCH_DIR}/lib/libtorch_cuda.so")
    message(FATAL_ERROR "QFT_CUDA=ON, but the LibTorch in '${QFT_TORCH_DIR}' is a CPU one (no libtorch_cuda.so): "
                        "run scripts/setup.sh cuda, or pass the folder of a CUDA build in -DQFT_TORCH_DIR")
  endif()
  # One process cannot hold two CUDA run-times: the toolkit's major version must be LibTorch's.
  file(STRINGS "${QFT_TORCH_DIR}/lib/libc10_cuda.so" _cudart LIMIT_COUNT 1 REGEX "libcudart\\.so\\.[0-9]+")
  string(REGEX REPLACE ".*libcudart\\.so\\.([0-9]+).*" "\\1" _torch_cuda "${_cudart}")
  if(_torch_cuda AND NOT _torch_cuda EQUAL CUDAToolkit_VERSION_MAJOR)
    message(FATAL_ERROR "LibTorch in '${QFT_TORCH_DIR}' is built for CUDA ${_torch_cuda}, but nvcc's toolkit is "
                        "${CUDAToolkit_VERSION}: load a CUDA ${_torch_cuda} toolkit (CUDAToolkit_ROOT), or take another LibTorch")
  endif()
  # libtorch_cuda.so registers its kernels when it is loaded; no symbol of ours refers to it. A program that computes
  # nothing leaves it out by the property QFT_FILES_ONLY.
  set(_computes "$<NOT:$<BOOL:$<TARGET_PROPERTY:QFT_FILES_ONLY>>>")
  target_link_libraries(qft_torch INTERFACE
    "$<${_computes}:-Wl,--push-state,--no-as-needed,${QFT_TORCH_DIR}/lib/libtorch_cuda.so,--pop-state>"
    "${QFT_TORCH_DIR}/lib/libtorch_cuda.so" "${QFT_TORCH_DIR}/lib/libc10_cuda.so" $<LINK_ONLY:CUDA::cudart>)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Machine code for each; the newest also in the form that a later chip's driver compiles.
    set(_chips 80-real 90)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      set(_chips 80-real 90-real 100-real 120)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${_chips} CACHE STRING "GPU generations that the kernels are compiled for")
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")  # found beside the toolkit where PATH lacks it
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's: a process must not hold two
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # before 3.25.2 CMake does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  # Device code may call what the host computes at compile time too, such as the random words of dropout.
  target_compile_options(qft_torch INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
endif()
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
target_include_directories(qft_torch_fmt SYSTEM PRIVATE "${QFT_TORCH_DIR}/include")
target_link_libraries(qft_torch INTERFACE qft_torch_fmt)
target_link_options(qft_torch INTERFACE "-Wl,-rpath,${QFT_TORCH_DIR}/lib")
add_library(qft::torch ALIAS qft_torch)
