# Gives qft::nccl in CUDA builds: the libnccl that LibTorch's wheel brings (the one its libtorch_cuda.so uses), else
# the one of the system or of NCCL_ROOT. Two different NCCLs in one process would each keep their own state.
set(QFT_NCCL_TARGET "")
if(QFT_CUDA)
  set(_beside_torch "${QFT_TORCH_DIR}/../nvidia/nccl")
  find_path(QFT_NCCL_INCLUDE nccl.h HINTS "${_beside_torch}/include" ENV NCCL_ROOT PATH_SUFFIXES include)
  find_library(QFT_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS "${_beside_torch}/lib" ENV NCCL_ROOT PATH_SUFFIXES lib lib64)
  if(NOT QFT_NCCL_INCLUDE OR NOT QFT_NCCL_LIBRARY)
    message(FATAL_ERROR "NCCL not found beside LibTorch (${_beside_torch}) or in the system: install the wheel "
                        "nvidia-nccl-cu13 beside torch, or set NCCL_ROOT to a folder with include/nccl.h and lib/libnccl.so")
  endif()
  add_library(qft_nccl INTERFACE)
  target_include_directories(qft_nccl SYSTEM INTERFACE "${QFT_NCCL_INCLUDE}")
  target_link_libraries(qft_nccl INTERFACE "${QFT_NCCL_LIBRARY}" CUDA::cudart)
  get_filename_component(_nccl_folder "${QFT_NCCL_LIBRARY}" DIRECTORY)
  target_link_options(qft_nccl INTERFACE "-Wl,-rpath,${_nccl_folder}")
  add_library(qft::nccl ALIAS qft_nccl)
  set(QFT_NCCL_TARGET $<LINK_ONLY:qft::nccl>)
endif()
