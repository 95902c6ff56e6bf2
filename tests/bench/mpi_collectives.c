// One rank of an MPI for scripts/bench-between-hosts and scripts/bench-collectives: times fp32
// collectives as smp-bench does (the slowest rank, the median of the samples; --dirty: inputs are
// rewritten before every call) and writes {"all_reduce": {"4096": seconds}} to a file.
//
//   mpirun ... mpi_collectives OUT [--dirty] BYTES ...
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSamples = 7, kOps = 3, kMostSizes = 32 };
enum { kTimedByte = 0x3c };  // as smp-bench's: not zeros
static const double kSampleSeconds = 0.02, kSettlingSeconds = 0.3;
static const char* const kNames[kOps] = {"all_reduce", "all_gather", "reduce_scatter"};

static int ranks, is_dirty;

static void call(int op, float* in, float* out, int count) {
  const int part = count / ranks;
  if (op == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (op == 1) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (op == 2) MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double slowest(double mine) {
  double all;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

static double seconds_of(int calls, int op, float* in, float* out, int count) {
  double sum = 0;
  if (!is_dirty) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call(op, in, out, count);
    return slowest(MPI_Wtime() - start);
  }
  for (int i = 0; i < calls; ++i) {
    memset(in, kTimedByte, (size_t)count * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    call(op, in, out, count);
    sum += slowest(MPI_Wtime() - start);
  }
  return sum;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Batches grow until one takes about as long as a sample, as smp-bench's do.
static int calls_of_a_sample(int op, float* in, float* out, int count) {
  const double most = is_dirty ? 10000 : 100000;
  int calls = 3;
  for (int is_warm = 0;; is_warm = 1) {
    const double wanted = calls * kSampleSeconds / seconds_of(calls, op, in, out, count);
    const int next = (int)(wanted < 1 ? 1 : wanted > most ? most : wanted);
    if (is_warm && next < 2 * calls) return next;
    calls = next;
  }
}

static double median_of(int op, float* in, float* out, int count) {
  double samples[kSamples];
  call(op, in, out, count);
  const int calls = calls_of_a_sample(op, in, out, count);
  for (int i = 0; i < kSamples; ++i) samples[i] = seconds_of(calls, op, in, out, count) / calls;
  qsort(samples, kSamples, sizeof(double), ascending);
  return samples[kSamples / 2];
}

// Aligned as PyTorch's tensors are, and written: pages that nobody has written are all one page.
static float* make_buffer(int count) {
  enum { kLine = 64 };
  const size_t bytes = ((size_t)count * sizeof(float) + kLine - 1) / kLine * kLine;
  float* buffer = aligned_alloc(kLine, bytes);
  if (buffer == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(buffer, kTimedByte, bytes);
  return buffer;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  double seconds[kOps][kMostSizes];
  const double start = MPI_Wtime();
  while (slowest(MPI_Wtime() - start) < kSettlingSeconds) {  // as smp-bench's ranks do
  }
  is_dirty = argc > 2 && strcmp(argv[2], "--dirty") == 0;
  char** const size_words = argv + 2 + is_dirty;
  const int sizes = argc - 2 - is_dirty;
  if (sizes < 1 || sizes > kMostSizes) MPI_Abort(MPI_COMM_WORLD, 2);
  for (int i = 0; i < sizes; ++i) {
    const int count = (int)(atol(size_words[i]) / 4);
    float* in = make_buffer(count);
    float* out = make_buffer(count);
    for (int op = 0; op < kOps; ++op) seconds[op][i] = median_of(op, in, out, count);
    free(in);
    free(out);
  }
  if (rank == 0) {
    FILE* file = fopen(argv[1], "w");
    if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int op = 0; op < kOps; ++op) {
      fprintf(file, "%s\"%s\": {", op == 0 ? "{" : ", ", kNames[op]);
      for (int i = 0; i < sizes; ++i)
        fprintf(file, "%s\"%s\": %.9f", i == 0 ? "" : ", ", size_words[i], seconds[op][i]);
      fprintf(file, "}");
    }
    fprintf(file, "}\n");
    if (fclose(file) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
