#include <algorithm>

#include "kernels/element_types.h"
#include "kernels/image_kernels.h"
#include "layers/operations/kernels_of.h"

// Convolutions and poolings. Samples go through a convolution's product in groups
// (samples_at_once()), as rows of patches; outputs and their gradients are turned between
// [channels, pixels] and [pixels, channels].
namespace smp::layers {
namespace {

// A wide buffer for the `count` sums of an image of 16-bit x; undefined if x is wide, where sums
// are taken in place.
at::Tensor empty_sums(const at::Tensor& x, int64_t count) {
  return kernels::is_narrow(x) ? ledger::empty_tensor({count}, kernels::wide_options(x))
                               : at::Tensor();
}

kernels::PatchShape patch_shape(const program::ImageAttributes& image) {
  const OperatorSpec& spec = image.spec;
  return {.channels = image.in[0],
          .height = image.in[1],
          .width = image.in[2],
          .kernel = spec.kernel,
          .stride = spec.stride == 0 ? spec.kernel : spec.stride,
          .padding = spec.padding,
          .out_height = image.out[1],
          .out_width = image.out[2]};
}

class Convolution {
 public:
  explicit Convolution(const Frame& frame)
      : shape_(patch_shape(frame.as<program::ImageAttributes>())),
        channels_(frame.as<program::ImageAttributes>().out[0]) {}

  void forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
               const at::Tensor& y) const {
    for_each_group(x, [&](int64_t first, int64_t count) {
      const at::Tensor rows = kernels::functions_of(x).product(patches(x, first, count), weight);
      kernels::with_element_type(x, [&](auto zero) {
        using T = decltype(zero);
        kernels::channels_first(count, channels_, shape_.windows(), kernels::data_of<T>(rows),
                                kernels::data_of<T>(bias), output_of<T>(y, first));
      });
    });
  }

  void input_gradient(const at::Tensor& dy, const at::Tensor& weight, const at::Tensor& dx) const {
    const at::Tensor sums = empty_sums(dx, shape_.elements());
    for_each_group(dx, [&](int64_t first, int64_t count) {
      const at::Tensor of_patches =
          kernels::functions_of(dy).product(rows_of(dy, first, count), weight.t());
      kernels::with_element_type(dx, [&](auto zero) {
        using T = decltype(zero);
        sum_patches(shape_, count, kernels::data_of<T>(of_patches),
                    kernels::data_of<T>(dx) + first * shape_.elements(),
                    kernels::data_of<kernels::Wide<T>>(sums));
      });
    });
  }

  void weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& gradient,
                       const at::Tensor& bias_gradient) const {
    for_each_group(x, [&](int64_t first, int64_t count) {
      const at::Tensor rows = rows_of(dy, first, count);
      const kernels::DeviceFunctions& functions = kernels::functions_of(rows);
      functions.add_column_sums(rows, bias_gradient);
      functions.add_product(rows, patches(x, first, count), 1, gradient);
    });
  }

 private:
  template <typename Body>
  void for_each_group(const at::Tensor& x, const Body& body) const {
    const int64_t samples = x.size(0);
    const int64_t step = model::samples_at_once(samples, shape_.windows());
    for (int64_t first = 0; first < samples; first += step) {
      body(first, std::min(step, samples - first));
    }
  }

  at::Tensor patches(const at::Tensor& x, int64_t first, int64_t count) const {
    at::Tensor rows = ledger::empty_tensor({count * shape_.windows(), shape_.patch()}, x.options());
    kernels::with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      copy_patches(shape_, count, kernels::data_of<T>(x) + first * shape_.elements(),
                   kernels::data_of<T>(rows));
    });
    return rows;
  }

  at::Tensor rows_of(const at::Tensor& dy, int64_t first, int64_t count) const {
    at::Tensor rows = ledger::empty_tensor({count * shape_.windows(), channels_}, dy.options());
    kernels::with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      kernels::channels_last(count, channels_, shape_.windows(), output_of<T>(dy, first),
                             kernels::data_of<T>(rows));
    });
    return rows;
  }

  template <typename T>
  T* output_of(const at::Tensor& y, int64_t sample) const {
    return kernels::data_of<T>(y) + sample * channels_ * shape_.windows();
  }

  const kernels::PatchShape shape_;
  const int64_t channels_;
};

// Windows as torch takes them: of `kernel` at steps of `stride`, or (adaptive) as many as there are
// outputs, which overlap where they do not divide.
std::vector<kernels::Window> windows_of(const OperatorSpec& spec, int64_t in, int64_t out) {
  std::vector<kernels::Window> windows;
  const int64_t stride = spec.stride == 0 ? spec.kernel : spec.stride;
  for (int64_t i = 0; i < out; ++i) {
    windows.push_back(spec.kind == OperatorKind::kAdaptiveAvgPool2d
                          ? kernels::Window{i * in / out, ((i + 1) * in + out - 1) / out}
                          : kernels::Window{i * stride, i * stride + spec.kernel});
  }
  return windows;
}

kernels::MeanShape mean_shape(const program::ImageAttributes& image) {
  return {.height = image.in[1],
          .width = image.in[2],
          .rows = windows_of(image.spec, image.in[1], image.out[1]),
          .cols = windows_of(image.spec, image.in[2], image.out[2])};
}

int64_t planes_of(const at::Tensor& x, const program::ImageAttributes& image) {
  return x.size(0) * image.in[0];
}

}  // namespace

void run_convolution(Frame& frame) {
  Convolution(frame).forward(frame.in(0), frame.in(1), frame.in(2), frame.make(0));
}

void run_convolution_input_gradient(Frame& frame) {
  Convolution(frame).input_gradient(frame.in(0), frame.in(1), frame.make(0));
}

void run_convolution_weight_gradient(Frame& frame) {
  Convolution(frame).weight_gradient(frame.in(0), frame.in(1), frame.gradient(0),
                                     frame.gradient(1));
}

void run_max_pool(Frame& frame) {
  const auto& image = frame.as<program::ImageAttributes>();
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  const at::Tensor& places = frame.make(1);
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    max_pool(patch_shape(image), planes_of(x, image), kernels::data_of<T>(x),
             kernels::data_of<T>(y), kernels::data_of<int32_t>(places));
  });
}

void run_max_pool_backward(Frame& frame) {
  const auto& image = frame.as<program::ImageAttributes>();
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& dx = frame.make(0);
  const at::Tensor sums = empty_sums(dy, image.in[1] * image.in[2]);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    max_pool_backward(patch_shape(image), planes_of(dy, image), kernels::data_of<T>(dy),
                      kernels::data_of<int32_t>(frame.in(1)), kernels::data_of<T>(dx),
                      kernels::data_of<kernels::Wide<T>>(sums));
  });
}

void run_mean_pool(Frame& frame) {
  const auto& image = frame.as<program::ImageAttributes>();
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  kernels::with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    mean_pool(mean_shape(image), planes_of(x, image), kernels::data_of<T>(x),
              kernels::data_of<T>(y));
  });
}

void run_mean_pool_backward(Frame& frame) {
  const auto& image = frame.as<program::ImageAttributes>();
  const at::Tensor& dy = frame.in(0);
  const at::Tensor& dx = frame.make(0);
  const at::Tensor sums = empty_sums(dy, image.in[1] * image.in[2]);
  kernels::with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    mean_pool_backward(mean_shape(image), planes_of(dy, image), kernels::data_of<T>(dy),
                       kernels::data_of<T>(dx), kernels::data_of<kernels::Wide<T>>(sums));
  });
}

void run_reshape(Frame& frame) { frame.set_over(0, frame.in(0)); }

}  // namespace smp::layers
