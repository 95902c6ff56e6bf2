#include "smp/plan/data/image_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "plan/list_samples.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::data;

namespace {

// What reading `text` as images of 1 x 1 x 3, classes 0 to 6, throws.
std::string failure(const std::string& text, int64_t held_out = 0, int64_t batch = 1) {
  const ScratchFolder folder;
  std::ofstream(folder / "images.csv") << text;
  JobSpec job;
  job.model = small_list();
  job.training.images = {1, 1, 3, 16};
  job.training.data_path = folder / "images.csv";
  job.training.global_batch = batch;
  if (held_out > 0) {
    job.training.evaluation = {.every_steps = 1, .samples = held_out};
  }
  try {
    read_image_file(job);
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    const size_t at = what.find("images.csv");
    return at == std::string::npos ? what : what.substr(at);
  }
  return "";
}

}  // namespace

TEST_CASE("images: numbers become -1 to 1, the last ones are held out") {
  const ScratchFolder folder;
  std::ofstream(folder / "images.csv") << "0,8,16,2\r\n16,4,0.5,6";
  JobSpec job;
  job.model = small_list();
  job.training.images = {1, 1, 3, 16};
  job.training.data_path = folder / "images.csv";
  job.training.global_batch = 1;
  job.training.evaluation.every_steps = 1;
  const ImageFile file = read_image_file(job);
  CHECK(file.pixels == std::vector<float>{-1, 0, 1, 1, -0.5, -0.9375});
  CHECK(file.labels == std::vector<int32_t>{2, 6});
  CHECK(file.trained == 1);
}

TEST_CASE("images: what is wrong in a file is said with its line") {
  CHECK(failure("") == "images.csv holds no images");
  CHECK(failure("0,1,2\n") == "images.csv line 1: 3 numbers, expected 1 x 1 x 3 = 3 and a label");
  CHECK(failure("0,1,2,3\n0,1") ==
        "images.csv line 2: 2 numbers, expected 1 x 1 x 3 = 3 and a label");
  CHECK(failure("0,1,2,3,4,5,6\n") ==
        "images.csv line 1: more than 4 numbers, expected 1 x 1 x 3 = 3 and a label");
  CHECK(failure("0,nan,2,3\n") == "images.csv line 1: 'nan' is not a number");
  CHECK(failure("0,,2,3\n") == "images.csv line 1: '' is not a number");
  CHECK(failure("0,1,17,3\n") ==
        "images.csv line 1: 17 is not within 0 to 16 (training.data.images.largest)");
  CHECK(failure("0,1,2,7\n") ==
        "images.csv line 1: the label 7 is not within 0 to 6, the classes of the last layer");
  CHECK(failure("0,1,2,1.5\n") ==
        "images.csv line 1: the label 1.5 is not within 0 to 6, the classes of the last layer");
  CHECK(failure("0,1,2,3\n", 1) ==
        "images.csv holds 1 images, too few for 1 held-out images and one to train on");
  CHECK(failure("0,1,2,3\n0,1,2,3\n", 0, 3) ==
        "images.csv holds 2 images to train on, fewer than one batch of 3: give more images, or a "
        "smaller training.global_batch");
}

TEST_CASE("images: a path that cannot be read is said as such") {
  const ScratchFolder folder;
  JobSpec job;
  job.model = small_list();
  job.training.images = {1, 1, 3, 16};
  const auto refused = [&](const std::string& path) {
    job.training.data_path = path;
    return error_of([&] { read_image_file(job); });
  };
  const std::string at = "training.data.path: " + std::string(folder.path());
  CHECK(refused("") == "training.data.path: no training data given: name a file of images");
  CHECK(refused(folder / "none.csv") == at + "/none.csv does not exist");
  CHECK(refused(folder.path()) ==
        at + " is not a file: images are read from one file with one image a line");
  std::ofstream(folder / "huge.csv") << "0";
  std::filesystem::resize_file(folder / "huge.csv", (uintmax_t{4} << 30) + 1);  // of holes
  CHECK(refused(folder / "huge.csv") == at + "/huge.csv is larger than 4 GiB, the limit of images "
                                             "held in memory: give fewer or smaller images");
}
