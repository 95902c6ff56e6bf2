#pragma once

// A function that is compiled three times; the loader picks the widest that the CPU has. Files that
// use it are compiled without contraction to fused multiply-adds, so all three round alike.
#define SMP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
