# smp::warnings: what every target of ours compiles with. Linked PRIVATE, never exported.
add_library(smp_warnings INTERFACE)
add_library(smp::warnings ALIAS smp_warnings)
target_compile_options(smp_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                              -Woverloaded-virtual -Werror)
if(SMP_SANITIZE)
  add_compile_options(-fsanitize=${SMP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SMP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Functions of libraries that are loaded by name are called by types of our own.
    add_compile_options(-fno-sanitize=function)
    # As gcc says it.
    if(SMP_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__)
    elseif(SMP_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__)
    endif()
  endif()
endif()
