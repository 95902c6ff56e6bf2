#include "kernels/expert_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/expert_math.h"

namespace smp::kernels {
namespace {

bool has_limits(const program::ActivationAttributes& activation) {
  return activation.limit > 0 || activation.offset != 0;
}

template <ActivationKind kKind, typename T>
SMP_INLINE void limited_row_forward(int64_t cols, const GateLimits<T>& limits, T weight,
                                    const T* gate, const T* up, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) y[c] = gated_element<kKind>(limits, weight, gate[c], up[c]);
}

template <ActivationKind kKind, typename T>
SMP_INLINE T limited_row_backward(int64_t cols, const GateLimits<T>& limits, T weight, T* gate,
                                  T* up, T* dy) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) {
    const ExpertGradients<T> d = gated_gradients<kKind>(limits, weight, gate[c], up[c], dy[c]);
    sum += d.weight;
    gate[c] = d.gate;
    up[c] = d.up;
    dy[c] = d.y;
  }
  return sum;
}

template <ActivationKind kKind, typename T>
SMP_INLINE void row_forward(const program::ActivationAttributes& activation, int64_t cols, T weight,
                            const T* gate, const T* up, T* y) {
  if (gate != nullptr && has_limits(activation)) {
    return limited_row_forward<kKind>(cols, limits_of<T>(activation), weight, gate, up, y);
  }
  if (gate != nullptr) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = weight * (value_of<kKind>(gate[c]) * up[c]);
  } else {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) y[c] = weight * value_of<kKind>(up[c]);
  }
}

template <ActivationKind kKind, typename T>
SMP_INLINE T row_backward(const program::ActivationAttributes& activation, int64_t cols, T weight,
                          T* gate, T* up, T* dy) {
  if (gate != nullptr && has_limits(activation)) {
    return limited_row_backward<kKind>(cols, limits_of<T>(activation), weight, gate, up, dy);
  }
  T sum = 0;
  if (gate != nullptr) {
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) {
      const Slope<T> at = slope_of<kKind>(gate[c]);
      const T y = at.value * up[c], d = weight * dy[c];
      sum += dy[c] * y;
      gate[c] = d * up[c] * at.derivative;
      up[c] = d * at.value;
      dy[c] = weight * y;
    }
  } else {
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) {
      const Slope<T> at = slope_of<kKind>(up[c]);
      sum += dy[c] * at.value;
      up[c] = weight * dy[c] * at.derivative;
      dy[c] = weight * at.value;
    }
  }
  return sum;
}

template <typename T>
void softmax_in_place(int64_t count, T* x) {
  const T most = *std::max_element(x, x + count);
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - most);
  for (int64_t i = 0; i < count; ++i) x[i] /= sum;
}

// The best of a group: of softmaxes the largest (DeepSeek-V2, arXiv:2405.04434 section 2.2.2), of
// sigmoids the sum of the two largest (DeepSeek-V3, arXiv:2412.19437 section 2.1.2).
template <typename T>
T score_of_group(RouterKind kind, int64_t count, const T* scores) {
  T first = -std::numeric_limits<T>::infinity(), second = first;
  for (int64_t i = 0; i < count; ++i) {
    if (scores[i] > first) {
      second = first;
      first = scores[i];
    } else if (scores[i] > second) {
      second = scores[i];
    }
  }
  return kind == RouterKind::kSigmoid && count > 1 ? first + second : first;
}

// The places of the largest values, largest first; of equal ones the first.
template <typename T>
void largest(int64_t count, const T* values, int64_t wanted, int32_t* places) {
  std::vector<bool> taken(static_cast<size_t>(count), false);
  for (int64_t k = 0; k < wanted; ++k) {
    int64_t best = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (taken[static_cast<size_t>(i)]) continue;
      if (best < 0 || values[i] > values[best]) best = i;
    }
    taken[static_cast<size_t>(best)] = true;
    places[k] = static_cast<int32_t>(best);
  }
}

template <typename T>
void choose(const program::RouterAttributes& router, const T* bias, T* scores, int32_t* chosen,
            T* weights) {
  const int64_t experts = router.experts, k = router.experts_per_token;
  if (router.kind == RouterKind::kSoftmax) softmax_in_place(experts, scores);
  if (router.kind == RouterKind::kSigmoid) {
    for (int64_t e = 0; e < experts; ++e) scores[e] = T(1) / (T(1) + std::exp(-scores[e]));
  }
  std::vector<T> biased;
  const T* choosing = scores;
  if (bias != nullptr) {
    for (int64_t e = 0; e < experts; ++e) biased.push_back(scores[e] + bias[e]);
    choosing = biased.data();
  }
  if (router.groups > 1) {
    const int64_t size = experts / router.groups;
    std::vector<T> of_groups,
        allowed(static_cast<size_t>(experts), -std::numeric_limits<T>::infinity());
    for (int64_t g = 0; g < router.groups; ++g) {
      of_groups.push_back(score_of_group(router.kind, size, choosing + g * size));
    }
    std::vector<int32_t> groups(static_cast<size_t>(router.groups_per_token));
    largest(router.groups, of_groups.data(), router.groups_per_token, groups.data());
    for (const int32_t g : groups) {
      std::copy_n(choosing + g * size, size, allowed.begin() + g * size);
    }
    largest(experts, allowed.data(), k, chosen);
  } else {
    largest(experts, choosing, k, chosen);
  }
  T sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += weights[i] = scores[chosen[i]];
  if (router.normalizes) {
    for (int64_t i = 0; i < k; ++i) weights[i] /= sum + kLeastSum<T>;
  }
  for (int64_t i = 0; i < k; ++i) weights[i] *= T(router.scale);
}

// The gradients of the chosen probabilities. A choice that its expert did not take has a weight of
// 0, and counts in the sum that the others were divided by.
template <typename T>
std::vector<T> chosen_gradients(const program::RouterAttributes& router, const T* probabilities,
                                const int32_t* chosen, const T* weights, const T* d_weights) {
  const int64_t k = router.experts_per_token;
  const T scale = T(router.scale);
  T mean = 0, sum = 0;  // of the gradients, by weight; of the probabilities
  for (int64_t i = 0; i < k; ++i) {
    mean += d_weights[i] * weights[i] / scale;
    sum += probabilities[expert_of_choice(chosen[i])];
  }
  std::vector<T> d(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    d[static_cast<size_t>(i)] = router.normalizes
                                    ? scale * (d_weights[i] - mean) / (sum + kLeastSum<T>)
                                    : scale * d_weights[i];
  }
  return d;
}

// Through the softmax, or the sigmoids, of a gradient of all probabilities; in its place.
template <typename T>
void scores_backward(RouterKind kind, int64_t experts, const T* probabilities, T* d) {
  if (kind == RouterKind::kSigmoid) {
    for (int64_t e = 0; e < experts; ++e) d[e] *= probabilities[e] * (T(1) - probabilities[e]);
    return;
  }
  T dot = 0;
  for (int64_t e = 0; e < experts; ++e) dot += d[e] * probabilities[e];
  for (int64_t e = 0; e < experts; ++e) d[e] = probabilities[e] * (d[e] - dot);
}

// Shares of sigmoids are these divided by their sum.
template <typename T>
void add_balance(RouterKind kind, int64_t experts, const T* probabilities, const T* balance, T* d) {
  T sum = 1, mean = 0;
  if (kind == RouterKind::kSigmoid) {
    sum = kLeastSum<T>;
    for (int64_t e = 0; e < experts; ++e) sum += probabilities[e];
    for (int64_t e = 0; e < experts; ++e) mean += balance[e] * probabilities[e] / sum;
  }
  for (int64_t e = 0; e < experts; ++e) d[e] += (balance[e] - mean) / sum;
}

// The derivative of the logsumexp is the softmax of the scores.
template <typename T>
void add_z(RouterKind kind, int64_t experts, const T* probabilities, T z, T* d) {
  if (kind == RouterKind::kSoftmax) {
    for (int64_t e = 0; e < experts; ++e) d[e] += z * probabilities[e];
    return;
  }
  T sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += odds_of(probabilities[e]);
  for (int64_t e = 0; e < experts && sum > 0; ++e) d[e] += z * odds_of(probabilities[e]) / sum;
}

template <typename T>
void choose_backward(const program::RouterAttributes& router, T* probabilities,
                     const int32_t* chosen, const T* weights, const T* d_weights,
                     const RouterLosses<T>& losses) {
  const int64_t experts = router.experts, k = router.experts_per_token;
  const std::vector<T> of_chosen =
      chosen_gradients(router, probabilities, chosen, weights, d_weights);
  std::vector<T> d(static_cast<size_t>(experts));
  for (int64_t i = 0; i < k; ++i) {
    d[static_cast<size_t>(expert_of_choice(chosen[i]))] = of_chosen[static_cast<size_t>(i)];
  }
  if (losses.balance != nullptr) {
    add_balance(router.kind, experts, probabilities, losses.balance, d.data());
  }
  scores_backward(router.kind, experts, probabilities, d.data());
  if (losses.z != 0) {
    add_z(router.kind, experts, probabilities, losses.z, d.data());
  }
  std::copy(d.begin(), d.end(), probabilities);
}

template <typename T>
T log_sum(int64_t experts, const T* scores) {
  const T highest = *std::max_element(scores, scores + experts);
  T sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += std::exp(scores[e] - highest);
  return highest + std::log(sum);
}

template <typename T>
void drop_beyond(const program::RouterAttributes& router, int64_t tokens, int32_t* chosen,
                 T* weights) {
  if (router.capacity == 0) return;
  std::vector<std::vector<int64_t>> choices(static_cast<size_t>(router.experts));
  for (int64_t i = 0; i < tokens * router.experts_per_token; ++i) {
    choices[static_cast<size_t>(chosen[i])].push_back(i);
  }
  for (std::vector<int64_t>& of_expert : choices) {
    if (static_cast<int64_t>(of_expert.size()) <= router.capacity) continue;
    std::stable_sort(of_expert.begin(), of_expert.end(),
                     [&](int64_t a, int64_t b) { return weights[a] > weights[b]; });
    for (size_t i = static_cast<size_t>(router.capacity); i < of_expert.size(); ++i) {
      chosen[of_expert[i]] = ~chosen[of_expert[i]];
      weights[of_expert[i]] = 0;
    }
  }
}

}  // namespace

// A macro, since a lambda would not be part of the clone that calls it.
#define SMP_EACH_KIND(loop, ...)                                                               \
  switch (activation.activation) {                                                             \
    case ActivationKind::kGelu: return loop<ActivationKind::kGelu>(__VA_ARGS__);               \
    case ActivationKind::kGeluErf: return loop<ActivationKind::kGeluErf>(__VA_ARGS__);         \
    case ActivationKind::kGeluSigmoid: return loop<ActivationKind::kGeluSigmoid>(__VA_ARGS__); \
    case ActivationKind::kRelu: return loop<ActivationKind::kRelu>(__VA_ARGS__);               \
    case ActivationKind::kSilu: return loop<ActivationKind::kSilu>(__VA_ARGS__);               \
  }

#define SMP_DEFINE(T)                                                                              \
  SMP_VECTOR_CLONES void expert_row_forward(                                                       \
      const program::ActivationAttributes& activation, int64_t cols, T weight, const T* gate,      \
      const T* up,                                                                                 \
      T* y){SMP_EACH_KIND(row_forward, activation, cols, weight, gate, up, y)} SMP_VECTOR_CLONES T \
  expert_row_backward(const program::ActivationAttributes& activation, int64_t cols, T weight,     \
                      T* gate, T* up, T* dy) {                                                     \
    SMP_EACH_KIND(row_backward, activation, cols, weight, gate, up, dy)                            \
    return T(0);                                                                                   \
  }                                                                                                \
  void choose_experts(const program::RouterAttributes& router, const T* bias, T* scores,           \
                      int32_t* chosen, T* weights) {                                               \
    choose(router, bias, scores, chosen, weights);                                                 \
  }                                                                                                \
  T log_sum_of(int64_t experts, const T* scores) { return log_sum(experts, scores); }              \
  void drop_beyond_capacity(const program::RouterAttributes& router, int64_t tokens,               \
                            int32_t* chosen, T* weights) {                                         \
    drop_beyond(router, tokens, chosen, weights);                                                  \
  }                                                                                                \
  void choose_experts_backward(const program::RouterAttributes& router, T* probabilities,          \
                               const int32_t* chosen, const T* weights, const T* d_weights,        \
                               const RouterLosses<T>& losses) {                                    \
    choose_backward(router, probabilities, chosen, weights, d_weights, losses);                    \
  }

SMP_DEFINE(float)
SMP_DEFINE(double)

}  // namespace smp::kernels
