# smp_precompile(target [header ...]): the headers that most files name, and those given, read once per
# target: a fifth less to compile. Each file includes what it needs all the same: the dev build compiles
# with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
function(smp_precompile target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory>
    <optional> <set> <string> <string_view> <utility> <vector> <fmt/format.h> ${ARGN})
  # gcc 12, with <string> precompiled, takes the move of a long literal's string for a read behind it.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-stringop-overread>)
endfunction()

# smp_optimize_little(target): of what mostly waits, or checks others that compute, half is saved to compile.
function(smp_optimize_little target)
  if(SMP_SANITIZE MATCHES "address")
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# smp_compile_in_batches(target): four files at a time, which read their headers once: a third less to compile. Names in
# anonymous namespaces must differ within a batch. Not in the dev build, where one edited file is compiled, and editors
# find the command of each.
function(smp_compile_in_batches target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
endfunction()
