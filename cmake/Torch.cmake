# Imported targets for libtorch, without find_package(Torch): that enables the CUDA language and
# fails in its architecture probe where no GPU toolchain is set up.
#
#   torch::cpu   libtorch_cpu and libc10, with the C++ API headers
#
# SMP_TORCH_ROOT names a folder that holds include/ and lib/ of torch 2.11; by default the one that
# scripts/setup installs.
set(SMP_TORCH_VERSION 2.11.0)
if(NOT SMP_TORCH_ROOT AND DEFINED ENV{SMP_TORCH_ROOT})
  set(SMP_TORCH_ROOT $ENV{SMP_TORCH_ROOT})
endif()
if(NOT SMP_TORCH_ROOT)
  set(SMP_TORCH_ROOT ${CMAKE_SOURCE_DIR}/.deps/torch-${SMP_TORCH_VERSION}/torch)
endif()
set(SMP_TORCH_ROOT ${SMP_TORCH_ROOT} CACHE PATH "torch folder with include/ and lib/" FORCE)

if(NOT EXISTS ${SMP_TORCH_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no libtorch_cpu.so under ${SMP_TORCH_ROOT}/lib: run scripts/setup, set "
                      "SMP_TORCH_ROOT, or configure with -DSMP_RUNTIME=OFF")
endif()

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libc10.so)

add_library(torch::cpu SHARED IMPORTED)
set_target_properties(torch::cpu PROPERTIES IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libtorch_cpu.so)
# After the system's own folders: torch brings another fmt, which must not shadow the one we link.
target_compile_options(
  torch::cpu INTERFACE "SHELL:-idirafter ${SMP_TORCH_ROOT}/include"
                       "SHELL:-idirafter ${SMP_TORCH_ROOT}/include/torch/csrc/api/include")
# libtorch_cpu needs libraries that live in its own folder and in its neighbours' (CUPTI, cudart);
# they are resolved at run time through its own RPATH, not at link time.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(torch::cpu INTERFACE torch::c10)
