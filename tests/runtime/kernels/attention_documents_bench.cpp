#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/attention.h"
#include "smp/plan/program/attention_scratch.h"

// How much faster attention is where a sample holds several documents: forward and backward over a
// sample of L tokens as one document, and as documents of L / 8, in turn. One thread, fp32. Prints
// medians in milliseconds, one line a length.
namespace smp {
namespace {

constexpr int64_t kHeads = 4, kHeadDim = 64, kDocuments = 8;

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size()) / 2,
                   values.end());
  return values[values.size() / 2];
}

struct Times {
  std::vector<double> forward_ms, backward_ms;
};

class Sample {
 public:
  explicit Sample(int64_t tokens) {
    shape_.batch = 1;
    shape_.sequence = shape_.keys = tokens;
    shape_.heads = shape_.kv_heads = kHeads;
    shape_.head_dim = kHeadDim;
    shape_.scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
    shape_.rotary.dim = kHeadDim;
    const auto elements = static_cast<size_t>(tokens * shape_.packed_cols());
    for (size_t i = 0; i < elements; ++i)
      packed_.push_back(std::sin(0.37F * static_cast<float>(i)));
    output_.resize(static_cast<size_t>(tokens * shape_.output_cols()));
    log_sums_.resize(static_cast<size_t>(shape_.log_sums()));
    scratch_.resize(
        static_cast<size_t>(std::max(program::attention_forward_scratch(shape_, false),
                                     program::attention_backward_scratch(shape_, false))));
    const int64_t length = tokens / kDocuments;
    for (int64_t i = 0; i < tokens; ++i) starts_.push_back(i / length * length);
  }

  void run(bool has_documents, Times& times) {
    shape_.documents = shape_.documents_on_host = has_documents ? starts_.data() : nullptr;
    std::vector<float> rows = packed_;
    const Clock::time_point start = Clock::now();
    attention_forward(shape_, {}, kernels::packed_rows<const float>(shape_, rows.data()),
                      all_pairs(shape_), output_.data(), log_sums_.data(), scratch_.data());
    const Clock::time_point between = Clock::now();
    attention_backward(shape_, {}, kernels::packed_rows<float>(shape_, rows.data()),
                       all_pairs(shape_), output_.data(), output_.data(), log_sums_.data(),
                       scratch_.data());
    const std::chrono::duration<double, std::milli> forward = between - start;
    const std::chrono::duration<double, std::milli> backward = Clock::now() - between;
    times.forward_ms.push_back(forward.count());
    times.backward_ms.push_back(backward.count());
  }

 private:
  kernels::AttentionShape shape_;
  std::vector<float> packed_, output_, log_sums_, scratch_;
  std::vector<int64_t> starts_;
};

void measure(int64_t tokens, int rounds) {
  Sample sample(tokens);
  Times warm_up, one, many;
  sample.run(false, warm_up);
  sample.run(true, warm_up);
  for (int round = 0; round < rounds; ++round) {
    sample.run(false, one);
    sample.run(true, many);
  }
  fmt::print("{} {:.4f} {:.4f} {:.4f} {:.4f}\n", tokens, median(one.forward_ms),
             median(one.backward_ms), median(many.forward_ms), median(many.backward_ms));
}

}  // namespace
}  // namespace smp

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 5;
  for (const int64_t tokens : {1024, 2048, 4096, 8192}) smp::measure(tokens, rounds);
}
