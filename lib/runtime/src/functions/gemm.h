#pragma once

#include <cstdint>

// The BLAS that libtorch carries, for products of small blocks inside our own loops, where a tensor
// operation per block would cost as much as the product.
extern "C" {
void sgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void dgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace smp {

enum class Transpose { kNo, kYes };

inline void blas_gemm(const char* ta, const char* tb, const int* m, const int* n, const int* k,
                      const float* alpha, const float* a, const int* lda, const float* b,
                      const int* ldb, const float* beta, float* c, const int* ldc) {
  sgemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void blas_gemm(const char* ta, const char* tb, const int* m, const int* n, const int* k,
                      const double* alpha, const double* a, const int* lda, const double* b,
                      const int* ldb, const double* beta, double* c, const int* ldc) {
  dgemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// c = alpha * op(a) op(b) + beta * c, all row-major: c is [m, n], op(a) [m, k], op(b) [k, n]; ldx
// is the distance between rows as stored.
template <typename T>
void gemm(Transpose trans_a, Transpose trans_b, int64_t m, int64_t n, int64_t k, T alpha,
          const T* a, int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  // BLAS is column-major: it computes the transposed product.
  const char ta = trans_a == Transpose::kYes ? 'T' : 'N';
  const char tb = trans_b == Transpose::kYes ? 'T' : 'N';
  const int im = static_cast<int>(m), in = static_cast<int>(n), ik = static_cast<int>(k);
  const int ilda = static_cast<int>(lda), ildb = static_cast<int>(ldb),
            ildc = static_cast<int>(ldc);
  blas_gemm(&tb, &ta, &in, &im, &ik, &alpha, b, &ildb, a, &ilda, &beta, c, &ildc);
}

}  // namespace smp
