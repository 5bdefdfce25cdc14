# The back end of CUDA: QFT_HAS_CUDA says whether it is built, beside programs that know nothing of CUDA.
set(QFT_HAS_CUDA OFF)
if(NOT QFT_CUDA STREQUAL "OFF")
  set(_obstacle "")
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(_obstacle "no CUDA toolkit with nvcc is found: load its module, or set CUDAToolkit_ROOT")
  elseif(NOT EXISTS "${QFT_TORCH_DIR}/lib/libtorch_cuda.so")
    set(_obstacle "the LibTorch in '${QFT_TORCH_DIR}' is a CPU one (no libtorch_cuda.so): run scripts/setup.sh cuda, or pass the "
                  "folder of a CUDA build in -DQFT_TORCH_DIR")
    string(CONCAT _obstacle ${_obstacle})
  else()
    # One process cannot hold two CUDA run-times: the toolkit's major version must be LibTorch's.
    file(STRINGS "${QFT_TORCH_DIR}/lib/libc10_cuda.so" _cudart LIMIT_COUNT 1 REGEX "libcudart\\.so\\.[0-9]+")
    string(REGEX REPLACE ".*libcudart\\.so\\.([0-9]+).*" "\\1" _torch_cuda "${_cudart}")
    if(_torch_cuda AND NOT _torch_cuda EQUAL CUDAToolkit_VERSION_MAJOR)
      string(CONCAT _obstacle "LibTorch in '${QFT_TORCH_DIR}' is built for CUDA ${_torch_cuda}, but nvcc's toolkit is "
             "${CUDAToolkit_VERSION}: load a CUDA ${_torch_cuda} toolkit (CUDAToolkit_ROOT), or take another LibTorch")
    endif()
  endif()
  # libnccl: the one that LibTorch's wheel brings, else that of the system or of NCCL_ROOT. What is linked says the interface; at run
  # time the user's search path decides.
  set(_beside_torch "${QFT_TORCH_DIR}/../nvidia/nccl")
  find_path(QFT_NCCL_INCLUDE nccl.h HINTS "${_beside_torch}/include" ENV NCCL_ROOT PATH_SUFFIXES include)
  find_library(QFT_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${_beside_torch}/lib" ENV NCCL_ROOT PATH_SUFFIXES lib lib64)
  if(NOT _obstacle AND (NOT QFT_NCCL_INCLUDE OR NOT QFT_NCCL_LIBRARY))
    string(CONCAT _obstacle "NCCL is not found beside LibTorch (${_beside_torch}) or in the system: install the wheel nvidia-nccl-cu13 "
           "beside torch, or set NCCL_ROOT to a folder with include/nccl.h and lib/libnccl.so")
  endif()
  if(_obstacle AND NOT QFT_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "QFT_CUDA=${QFT_CUDA}, but ${_obstacle}")
  elseif(_obstacle)
    message(STATUS "Without the back end of CUDA: ${_obstacle}")
  else()
    set(QFT_HAS_CUDA ON)
  endif()
endif()

if(QFT_HAS_CUDA)
  add_library(qft_torch_cuda INTERFACE)
  target_link_libraries(qft_torch_cuda INTERFACE
    "-Wl,--push-state,--no-as-needed,${QFT_TORCH_DIR}/lib/libtorch_cuda.so,--pop-state"
    "${QFT_TORCH_DIR}/lib/libc10_cuda.so" CUDA::cudart)
  # Device code may call what the host computes at compile time too, such as the random words of dropout.
  target_compile_options(qft_torch_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  # The chips that kernels are compiled for: by default machine code for each generation that the toolkit knows, from 8.0 on made
  # from the PTX for 8.0 (no kernel uses more), so that the sources are read once; and that PTX, which a later chip's driver compiles.
  if(CMAKE_CUDA_ARCHITECTURES)
    string(REGEX REPLACE "([0-9]+[af]?)-real" "arch=compute_\\1,code=sm_\\1" _code "${CMAKE_CUDA_ARCHITECTURES}")
    string(REGEX REPLACE "([0-9]+[af]?)-virtual" "arch=compute_\\1,code=compute_\\1" _code "${_code}")
    string(REGEX REPLACE "(^|;)([0-9]+[af]?)" "\\1arch=compute_\\2,code=[compute_\\2,sm_\\2]" _code "${_code}")
  else()
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    set(_code "code=[compute_80,sm_80,sm_90")
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      string(APPEND _code ",sm_100,sm_120")
    endif()
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
      string(APPEND _code ",sm_121")
    endif()
    set(_oldest 75)
    if(CUDAToolkit_VERSION VERSION_LESS 13)  # the last toolkits that know Volta, whose code Turing runs
      set(_oldest 70)
    endif()
    set(_options "--generate-code=arch=compute_80,${_code}]" "--generate-code=arch=compute_${_oldest},code=[sm_${_oldest}]")
    target_compile_options(qft_torch_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${_options}>")
    set(_code "${_options}")
  endif()
  string(REPLACE ";" " " _code "${_code}")
  message(STATUS "CUDA kernels: ${_code}")
  # Read by src/cuda/chips.cpp, which refuses a chip for which there is nothing.
  target_compile_definitions(qft_torch_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:QFT_CUDA_CODE=\"${_code}\">")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")  # found beside the toolkit where PATH lacks it
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's: a process must not hold two
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # before 3.25.2 CMake does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()

  get_filename_component(_nccl_folder "${QFT_NCCL_LIBRARY}" DIRECTORY)
  target_include_directories(qft_torch_cuda SYSTEM INTERFACE "${QFT_NCCL_INCLUDE}")
  target_link_libraries(qft_torch_cuda INTERFACE "${QFT_NCCL_LIBRARY}")
  target_link_options(qft_torch_cuda INTERFACE "-Wl,-rpath,${_nccl_folder}")
endif()
