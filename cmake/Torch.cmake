# Imported targets for libtorch, without find_package(Torch): that enables the CUDA language and
# fails in its architecture probe where no GPU toolchain is set up.
#
#   torch::cpu   libtorch_cpu and libc10, with the C++ API headers
#
# SMP_TORCH_ROOT names a folder that holds include/ and lib/ of torch 2.11; by default the one that
# scripts/setup installs.
set(SMP_TORCH_VERSION 2.11.0)
if(DEFINED ENV{SMP_TORCH_ROOT})
  set(smp_torch_default $ENV{SMP_TORCH_ROOT})  # over what an earlier configure saw
  unset(SMP_TORCH_ROOT CACHE)
else()
  set(smp_torch_default ${CMAKE_SOURCE_DIR}/.deps/torch-${SMP_TORCH_VERSION}/torch)
endif()
set(SMP_TORCH_ROOT ${smp_torch_default} CACHE PATH "torch folder with include/ and lib/")

if(NOT EXISTS ${SMP_TORCH_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no libtorch_cpu.so under ${SMP_TORCH_ROOT}/lib: run scripts/setup, set "
                      "SMP_TORCH_ROOT, or configure with -DSMP_RUNTIME=OFF")
endif()

file(STRINGS ${SMP_TORCH_ROOT}/include/torch/headeronly/version.h smp_torch_found
     REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" smp_torch_found "${smp_torch_found}")
string(REPLACE ";" "." smp_torch_found "${smp_torch_found}")
if(NOT smp_torch_found VERSION_EQUAL SMP_TORCH_VERSION)
  message(FATAL_ERROR "${SMP_TORCH_ROOT} is torch ${smp_torch_found}; smp needs ${SMP_TORCH_VERSION}")
endif()

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libc10.so)

add_library(torch::cpu SHARED IMPORTED)
set_target_properties(torch::cpu PROPERTIES IMPORTED_LOCATION ${SMP_TORCH_ROOT}/lib/libtorch_cpu.so)
# After the system's own folders: torch brings another fmt, which must not shadow the one we link.
# (nvcc has no such option; what it compiles uses no fmt.)
set(smp_torch_api ${SMP_TORCH_ROOT}/include/torch/csrc/api/include)
target_compile_options(torch::cpu INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${SMP_TORCH_ROOT}/include>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${smp_torch_api}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-I${SMP_TORCH_ROOT}/include>")
# libtorch_cpu needs libraries that live in its own folder and in its neighbours' (CUPTI, cudart);
# they are resolved at run time through its own RPATH, not at link time.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(torch::cpu INTERFACE torch::c10)
