# libsmp_cuda.so, what a plan with `device: cuda` needs: built where the CUDA toolkit is.
#
# SMP_CUDA: AUTO (if nvcc is found), ON (an error if not) or OFF.
set(SMP_CUDA AUTO CACHE STRING "Build libsmp_cuda.so: AUTO, ON or OFF")
set_property(CACHE SMP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(smp_cuda_found OFF)
if(SMP_CUDA STREQUAL OFF)
  return()
endif()

find_program(SMP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
if(NOT SMP_NVCC)
  if(SMP_CUDA STREQUAL ON)
    message(FATAL_ERROR "SMP_CUDA is ON, and there is no nvcc on PATH, in CUDA_HOME or in "
                        "/usr/local/cuda: install the CUDA toolkit or configure with -DSMP_CUDA=OFF")
  endif()
  message(STATUS "no nvcc: libsmp_cuda.so is not built (SMP_CUDA)")
  return()
endif()

if(NOT EXISTS ${SMP_TORCH_ROOT}/lib/libtorch_cuda.so)
  if(SMP_CUDA STREQUAL ON)
    message(FATAL_ERROR "SMP_CUDA is ON, and there is no libtorch_cuda.so under "
                        "${SMP_TORCH_ROOT}/lib: this torch is built for CPUs alone")
  endif()
  message(STATUS "no libtorch_cuda.so: libsmp_cuda.so is not built (SMP_CUDA)")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${SMP_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)  # A100, H100 and H200, and later ones
endif()
set(CMAKE_CUDA_STANDARD_REQUIRED OFF)  # 3.25 knows no 20: the targets pass it
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(smp_cuda_found ON)

add_library(torch::cuda SHARED IMPORTED)
set_target_properties(torch::cuda PROPERTIES
  IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libtorch_cuda.so)
add_library(torch::c10_cuda SHARED IMPORTED)
set_target_properties(torch::c10_cuda PROPERTIES
  IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libc10_cuda.so)
# A program that names no symbol of libtorch_cuda must load it all the same: its kernels register
# themselves.
target_link_options(torch::cuda INTERFACE -Wl,--no-as-needed)
target_link_libraries(torch::cuda INTERFACE torch::c10_cuda torch::cpu CUDA::cudart)
