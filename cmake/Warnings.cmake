# smp::warnings: what every target of ours compiles with. Linked PRIVATE, never exported.
add_library(smp_warnings INTERFACE)
add_library(smp::warnings ALIAS smp_warnings)
target_compile_options(smp_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                              -Woverloaded-virtual -Werror)
if(SMP_SANITIZE)
  add_compile_options(-fsanitize=${SMP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SMP_SANITIZE})
endif()
