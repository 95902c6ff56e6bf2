#include <doctest/doctest.h>

#include "plan/list_samples.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/model/parameter_counts.h"

using namespace smp;
using namespace smp::jobfile;
using namespace smp::model;

TEST_CASE("AlexNet has torchvision's shapes and parameters, in eight layers") {
  const JobSpec job =
      read_job({load_job_source(SMP_SOURCE_DIR "/configs/models/alexnet.yaml")}, {});
  CHECK(parameter_count(job.model) == 61100840);  // torchvision.models.alexnet()
  const std::vector<LayerSpec> layers = layers_of(job.model);
  REQUIRE(layers.size() == 8);
  CHECK(layers[1].name == "layers.3");
  CHECK(parameters_of(job.model, layers[1])[0].name == "layers.3.weight");
  CHECK(parameters_of(job.model, layers[1])[0].rows == 192);
  CHECK(parameters_of(job.model, layers[1])[0].cols == 64 * 5 * 5);
  CHECK(layers[0].reads == BatchField::kImages);
  CHECK(layers[7].reads == BatchField::kLabels);
  CHECK(makes_loss(layers[7].kind));
  std::vector<std::string> handed;
  for (const LayerSpec& layer : layers) {
    for (const TensorSpec& tensor : outputs_of(job.model, layer, {.micro_batch = 2})) {
      CHECK(tensor.shape[0] == 2);
      handed.push_back(to_string({tensor.shape.begin() + 1, tensor.shape.end()}));
    }
  }
  CHECK(handed == std::vector<std::string>{"64 x 27 x 27", "192 x 13 x 13", "384 x 13 x 13",
                                           "256 x 13 x 13", "9216", "4096", "4096"});
}

TEST_CASE("a list is written as it was read") {
  const JobSpec job = read_job({load_job_source(SMP_SOURCE_DIR "/configs/jobs/digits.yaml")}, {});
  const JobSpec again = read_job({{"again.yaml", write_job_yaml(job, 0)}}, {});
  CHECK(again.model.operators == job.model.operators);
  CHECK(again.model.input_width == 32);
  CHECK(again.training.images.largest == 16);
  CHECK(again.training.sequence_length == 1);
  CHECK(again.model.vocab_size == 10);
  CHECK(again.model.num_layers == 7);
}

TEST_CASE("the parameters of a list add up, and tensor ranks hold them in parts") {
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) {
    int64_t sum = 0;
    for (const LayerSpec& layer : layers_of(model)) {
      for (const ParameterSpec& parameter : parameters_of(model, layer)) {
        sum += parameter.size();
        for (const int64_t degree : {1, 2, 3}) {
          int64_t held = 0;
          for (int64_t rank = 0; rank < degree; ++rank) {
            held += tensor_box(model, parameter, degree, rank).size();
          }
          const bool is_whole = parameter.split == TensorSplit::kReplicated;
          CHECK(held == (is_whole ? degree : 1) * parameter.size());
        }
      }
    }
    CHECK(parameter_count(model) == sum);
  }
  const ModelSpec model = small_list();
  const auto third = parameters_of(model, layers_of(model)[2]);
  CHECK(third[2].name == "layers.8.9.weight");  // the norm's, by its place in the list
}

TEST_CASE(
    "AlexNet's matrices are cut by outputs and inputs in turn, its activations between them") {
  const JobSpec job =
      read_job({load_job_source(SMP_SOURCE_DIR "/configs/models/alexnet.yaml")}, {});
  const ModelSpec& model = job.model;
  std::vector<std::string> cuts, handed;
  for (const LayerSpec& layer : layers_of(model)) {
    const ParameterSpec weight = parameters_of(model, layer)[0];
    const Box box = tensor_box(model, weight, 2, 1);
    cuts.push_back(to_string({box.row_begin, box.row_end, box.col_begin, box.col_end}));
    const LayerCall call{.micro_batch = 1, .tensor_degree = 2, .tensor_rank = 1};
    for (const TensorSpec& tensor : outputs_of(model, layer, call)) {
      handed.push_back(to_string({tensor.shape.begin() + 1, tensor.shape.end()}));
    }
  }
  CHECK(cuts == std::vector<std::string>{"32 x 64 x 0 x 363", "0 x 192 x 800 x 1600",
                                         "192 x 384 x 0 x 1728", "0 x 256 x 1728 x 3456",
                                         "128 x 256 x 0 x 2304", "0 x 4096 x 4608 x 9216",
                                         "2048 x 4096 x 0 x 4096", "0 x 1000 x 2048 x 4096"});
  CHECK(handed == std::vector<std::string>{"32 x 27 x 27", "192 x 13 x 13", "192 x 13 x 13",
                                           "256 x 13 x 13", "4608", "4096", "2048"});
  CHECK_FALSE(shares_loss(model));
  CHECK(shares_loss(cut_list()));
}

TEST_CASE("a part of flat features is of whole channels, uneven where they do not divide") {
  const ModelSpec model = cut_list();  // 5 channels of 2 x 2 ahead of the first linear
  const ParameterSpec weight = parameters_of(model, layers_of(model)[3])[0];
  CHECK(tensor_box(model, weight, 3, 0) == Box{0, 11, 0, 8});
  CHECK(tensor_box(model, weight, 3, 1) == Box{0, 11, 8, 16});
  CHECK(tensor_box(model, weight, 3, 2) == Box{0, 11, 16, 20});
}

TEST_CASE("windows and groups of samples") {
  CHECK(windows_along({.kernel = 3, .stride = 2}, 8) == 3);
  CHECK(windows_along({.kernel = 3, .stride = 2, .padding = 1}, 8) == 4);
  CHECK(windows_along({.kernel = 2}, 8) == 4);  // side by side
  CHECK(samples_at_once(64, 3025) == 1);
  CHECK(samples_at_once(64, 100) == 10);
  CHECK(samples_at_once(4, 100) == 4);
}
