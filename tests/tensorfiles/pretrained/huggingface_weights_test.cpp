#include "smp/tensorfiles/pretrained/huggingface_weights.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/checkpoint/checkpoint_manifest.h"
#include "smp/tensorfiles/safetensors/number_formats.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& family) {
  return SMP_SOURCE_DIR "/tests/golden/saved-weights/" + family;
}

// That of tests/golden/saved-weights/<family>/job.yaml.
ModelSpec model_of(ModelFamily family) {
  ModelSpec model;
  model::set_family(model, family);
  const text::OrderedJson config = text::OrderedJson::parse(
      text_of(golden(family == ModelFamily::kGpt2 ? "gpt2" : "llama") + "/config.json"));
  const bool gpt2 = family == ModelFamily::kGpt2;
  const auto size = [&](const char* ours, const char* theirs) {
    return config.at(gpt2 ? ours : theirs).get<int64_t>();
  };
  model.num_layers = size("n_layer", "num_hidden_layers");
  model.hidden_size = size("n_embd", "hidden_size");
  model.num_heads = size("n_head", "num_attention_heads");
  model.num_kv_heads = size("n_head", "num_key_value_heads");
  model.head_dim = model.hidden_size / model.num_heads;
  model.ffn_hidden_size = size("n_inner", "intermediate_size");
  model.vocab_size = config.at("vocab_size").get<int64_t>();
  model.max_positions = size("n_positions", "max_position_embeddings");
  model.tied_embeddings = config.at("tie_word_embeddings").get<bool>();
  model.norm_epsilon = config.at(gpt2 ? "layer_norm_epsilon" : "rms_norm_eps").get<double>();
  if (!gpt2) model.rope_theta = config.at("rope_theta").get<double>();
  return model;
}

std::vector<model::ParameterSpec> parameters_of_model(const ModelSpec& model) {
  std::vector<model::ParameterSpec> all;
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    for (const model::ParameterSpec& parameter : model::parameters_of(model, layer))
      all.push_back(parameter);
  }
  return all;
}

template <typename T>
std::vector<T> values_of(const pretrained::HuggingFaceWeights& weights,
                         const model::ParameterSpec& parameter, DType dtype, model::Box box,
                         int64_t begin, int64_t end) {
  std::vector<T> values(static_cast<size_t>(end - begin));
  safetensors::TensorPiece piece{parameter.name,
                                 {parameter.rows},
                                 dtype,
                                 box,
                                 begin,
                                 end,
                                 reinterpret_cast<std::byte*>(values.data())};
  if (!parameter.is_vector) piece.shape.push_back(parameter.cols);
  weights.read(piece);
  return values;
}

template <typename T>
std::vector<T> whole_of(const pretrained::HuggingFaceWeights& weights,
                        const model::ParameterSpec& parameter, DType dtype) {
  return values_of<T>(weights, parameter, dtype, {0, parameter.rows, 0, parameter.cols}, 0,
                      parameter.size());
}

// A folder of weights that a test takes apart.
struct Folder {
  explicit Folder(const std::string& family) {
    fs::copy(golden(family) + "/config.json", folder / "config.json");
    const safetensors::SafetensorsReader reader(golden(family) + "/model.safetensors");
    for (const safetensors::SafetensorsEntry& entry : reader.header().entries) {
      entries[entry.name] = entry;
      auto& bytes = data[entry.name];
      bytes.resize(static_cast<size_t>(entry.bytes()));
      reader.read(entry, bytes.data());
    }
  }

  void write(const std::string& file, const std::set<std::string>& names) const {
    std::vector<safetensors::SafetensorsEntry> chosen;
    for (const std::string& name : names) chosen.push_back(entries.at(name));
    safetensors::SafetensorsWriter writer(folder / file, chosen);
    for (const std::string& name : names) {
      writer.append(name, data.at(name).data(), static_cast<int64_t>(data.at(name).size()));
    }
    writer.finish();
  }

  // A tensor again, under another name.
  void copy_as(const std::string& name, const std::string& copy) {
    entries[copy] = entries.at(name);
    entries[copy].name = copy;
    data[copy] = data.at(name);
  }
  void remove(const std::string& name) {
    entries.erase(name);
    data.erase(name);
  }
  void rename_all(const auto& renamed) {
    for (const std::string& name : names()) {
      copy_as(name, renamed(name) + "?");
      remove(name);
    }
    for (const std::string& name : names()) {
      copy_as(name, name.substr(0, name.size() - 1));
      remove(name);
    }
  }
  // Says whether it is read as the folder of its family.
  bool is_read(const ModelSpec& model, const std::string& family) const {
    const pretrained::HuggingFaceWeights weights(folder.path(), model),
        whole(golden(family), model);
    for (const model::ParameterSpec& parameter : parameters_of_model(model)) {
      if (whole_of<float>(weights, parameter, DType::kF32) !=
          whole_of<float>(whole, parameter, DType::kF32))
        return false;
    }
    return true;
  }
  void change_config(const text::OrderedJson& changes) const {
    text::OrderedJson config = text::OrderedJson::parse(text_of(folder / "config.json"));
    config.update(changes);
    std::ofstream(folder / "config.json") << config.dump();
  }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& [name, entry] : entries) all.insert(name);
    return all;
  }

  // Under another type, as a file of that type would hold it.
  void convert(DType to) {
    for (auto& [name, entry] : entries) {
      auto& bytes = data.at(name);
      const int64_t count = entry.bytes() / bytes_of(entry.dtype);
      std::vector<std::byte> out(static_cast<size_t>(count * bytes_of(to)));
      safetensors::convert_numbers(entry.dtype, bytes.data(), count, to, out.data(), 1);
      bytes = out;
      entry.dtype = to;
      entry.end = entry.begin + count * bytes_of(to);
    }
  }

  std::string error(const ModelSpec& model) const {
    return error_of([&] { const pretrained::HuggingFaceWeights weights(folder.path(), model); });
  }

  ScratchFolder folder;
  std::map<std::string, safetensors::SafetensorsEntry> entries;
  std::map<std::string, std::vector<std::byte>> data;
};

}  // namespace

TEST_CASE("Hugging Face weights are our parameters, in any cut") {
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    const ModelSpec model = model_of(family);
    const std::string dir = golden(family == ModelFamily::kGpt2 ? "gpt2" : "llama");
    const pretrained::HuggingFaceWeights weights(dir, model);
    const safetensors::SafetensorsReader reader(dir + "/model.safetensors");
    for (const huggingface::HuggingFaceTensor& tensor : huggingface::huggingface_tensors(model)) {
      const safetensors::SafetensorsEntry& entry = *reader.find(tensor.name);
      std::vector<float> stored(static_cast<size_t>(entry.bytes() / 4));
      reader.read(entry, stored.data());
      REQUIRE(tensor.matrices.size() == 1);
      const huggingface::HuggingFaceMatrix& matrix = tensor.matrices.front();
      int64_t rows_before = 0;
      for (const huggingface::SourceRows& rows : matrix.sources) {
        const model::ParameterSpec& parameter = rows.parameter;
        INFO(parameter.name);
        REQUIRE(rows.count() == parameter.rows);
        const std::vector<float> all = whole_of<float>(weights, parameter, DType::kF32);
        for (int64_t r = 0; r < parameter.rows; ++r) {
          for (int64_t c = 0; c < parameter.cols; ++c) {
            const int64_t at = matrix.transposed ? c * matrix.rows() + rows_before + r
                                                 : (rows_before + r) * parameter.cols + c;
            REQUIRE(all[static_cast<size_t>(r * parameter.cols + c)] ==
                    stored[static_cast<size_t>(at)]);
          }
        }
        // The middle of a part of its columns, flat.
        const model::Box box{0, parameter.rows, parameter.cols / 3, parameter.cols};
        const int64_t begin = box.size() / 4, end = box.size() - box.size() / 5;
        const std::vector<float> part =
            values_of<float>(weights, parameter, DType::kF32, box, begin, end);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i / box.cols() * parameter.cols + box.col_begin + i % box.cols();
          REQUIRE(part[static_cast<size_t>(i - begin)] == all[static_cast<size_t>(at)]);
        }
        rows_before += parameter.rows;
      }
    }
  }
}

TEST_CASE("every 16-bit number survives the way to fp32 and back, and rounding is to nearest") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto in = static_cast<uint16_t>(bits);
      float wide = 0;
      uint16_t back = 0;
      safetensors::convert_numbers(dtype, reinterpret_cast<const std::byte*>(&in), 1, DType::kF32,
                                   reinterpret_cast<std::byte*>(&wide), 1);
      safetensors::convert_numbers(DType::kF32, reinterpret_cast<const std::byte*>(&wide), 1, dtype,
                                   reinterpret_cast<std::byte*>(&back), 1);
      if (std::isnan(wide)) continue;
      REQUIRE(back == in);
    }
  }
  const auto half = [](float value, DType dtype) {
    uint16_t out = 0;
    safetensors::convert_numbers(DType::kF32, reinterpret_cast<const std::byte*>(&value), 1, dtype,
                                 reinterpret_cast<std::byte*>(&out), 1);
    return out;
  };
  CHECK(half(1.0F, DType::kF16) == 0x3C00);
  CHECK(half(1.0F + 0x1p-11F, DType::kF16) == 0x3C00);      // a tie: to even
  CHECK(half(1.0F + 3 * 0x1p-11F, DType::kF16) == 0x3C02);  // a tie: to even
  CHECK(half(65519.0F, DType::kF16) == 0x7BFF);
  CHECK(half(65520.0F, DType::kF16) == 0x7C00);
  CHECK(half(0x1p-25F, DType::kF16) == 0);
  CHECK(half(-0x1p-24F, DType::kF16) == 0x8001);
  CHECK(half(1.0F + 0x1p-8F, DType::kBF16) == 0x3F80);
  CHECK(half(1.0F + 3 * 0x1p-8F, DType::kBF16) == 0x3F82);
  CHECK(half(std::numeric_limits<float>::infinity(), DType::kBF16) == 0x7F80);
}

TEST_CASE("bf16, fp16 and fp64 files become the run's type") {
  const ModelSpec model = model_of(ModelFamily::kLlama);
  const pretrained::HuggingFaceWeights exact(golden("llama"), model);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF64}) {
    Folder folder("llama");
    folder.convert(dtype);
    folder.write("model.safetensors", folder.names());
    const pretrained::HuggingFaceWeights weights(folder.folder.path(), model);
    const double unit = dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0;
    for (const model::ParameterSpec& parameter : parameters_of_model(model)) {
      const auto right = whole_of<float>(exact, parameter, DType::kF32);
      const auto found = whole_of<double>(weights, parameter, DType::kF64);
      for (size_t i = 0; i < right.size(); ++i) {
        REQUIRE(std::abs(found[i] - right[i]) <= unit * std::abs(right[i]) + 0x1p-25);
      }
    }
  }
}

TEST_CASE("sharded weights are read through their index") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  std::set<std::string> first, second;
  text::OrderedJson index = {{"metadata", {{"total_size", 1}}},
                             {"weight_map", text::OrderedJson::object()}};
  for (const std::string& name : folder.names()) {
    const bool in_first = first.size() <= second.size();
    (in_first ? first : second).insert(name);
    index["weight_map"][name] =
        in_first ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  folder.write("model-00001-of-00002.safetensors", first);
  folder.write("model-00002-of-00002.safetensors", second);
  const std::string path = folder.folder / "model.safetensors.index.json";
  const auto write_index = [&] { std::ofstream(path) << index.dump(); };
  write_index();
  const pretrained::HuggingFaceWeights weights(folder.folder.path(), model),
      whole(golden("gpt2"), model);
  for (const model::ParameterSpec& parameter : parameters_of_model(model)) {
    CHECK(whole_of<float>(weights, parameter, DType::kF32) ==
          whole_of<float>(whole, parameter, DType::kF32));
  }
  SUBCASE("a shard outside the folder") {
    index["weight_map"][*first.begin()] = "../model.safetensors";
    write_index();
    CHECK(folder.error(model) ==
          path +
              ": tensor 'transformer.h.0.attn.c_attn.bias' is listed in \"../model.safetensors\", "
              "which is not the name of a .safetensors file in the same folder");
  }
  SUBCASE("a missing shard") {
    fs::remove(folder.folder / "model-00002-of-00002.safetensors");
    CHECK(folder.error(model) ==
          folder.folder / "model-00002-of-00002.safetensors: the file is missing");
  }
  SUBCASE("a tensor in another shard than the index says") {
    index["weight_map"][*first.begin()] = "model-00002-of-00002.safetensors";
    write_index();
    CHECK(folder.error(model) ==
          folder.folder.path() +
              ": the index does not list tensor 'transformer.h.0.attn.c_attn.bias' for "
              "model-00001-of-00002.safetensors");
  }
  SUBCASE("an index that is none") {
    std::ofstream(path) << "[1]";
    CHECK(folder.error(model) == path + ": expected a JSON object with 'weight_map'");
  }
}

// Without a limit the recursion that prints or compares them runs out of stack.
TEST_CASE("JSON that nests without end is refused, in a string it is text") {
  constexpr size_t kLevels = 1'000'000;
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  const std::string object = "{\"rope_scaling\": " + deep + "}";
  CHECK(error_of([&] { huggingface::check_huggingface_config("c", object, ModelSpec{}); }) ==
        "c: nests more than 64 levels deep");
  CHECK(error_of([&] { pretrained::parse_weight_index("i", object); }) ==
        "i: nests more than 64 levels deep");
  CHECK(error_of([&] {
          checkpoint::parse_manifest("m", object);
        }).ends_with("nests more than 64 levels deep"));
  const auto header = [](const std::string& text) {
    const uint64_t length = text.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    file += text;
    return error_of([&] {
      safetensors::parse_safetensors_header("s", file, static_cast<int64_t>(file.size()));
    });
  };
  CHECK(header(object).ends_with("the header nests more than 64 levels deep"));
  CHECK(header("{\"__metadata__\": {\"a\": \"\\\"" + deep + "\"}}") == "no error");
}

TEST_CASE("GPT-2's own files have no name of the body in front, and masks among the weights") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  for (const std::string& name : folder.names()) {
    const std::string bare = name.substr(std::string("transformer.").size());
    folder.entries[bare] = folder.entries.at(name);
    folder.entries[bare].name = bare;
    folder.data[bare] = folder.data.at(name);
    folder.entries.erase(name);
  }
  folder.entries["h.0.attn.bias"] = {"h.0.attn.bias", DType::kF32, {1, 1, 2, 2}, 0, 16};
  folder.data["h.0.attn.bias"].resize(16);
  folder.write("model.safetensors", folder.names());
  const pretrained::HuggingFaceWeights weights(folder.folder.path(), model),
      whole(golden("gpt2"), model);
  const model::ParameterSpec parameter = parameters_of_model(model).front();
  CHECK(whole_of<float>(weights, parameter, DType::kF32) ==
        whole_of<float>(whole, parameter, DType::kF32));
}

TEST_CASE("a tied head that is in the file again is read where it is equal") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  folder.copy_as("transformer.wte.weight", "lm_head.weight");
  SUBCASE("equal") {
    folder.write("model.safetensors", folder.names());
    CHECK(folder.is_read(model, "gpt2"));
  }
  SUBCASE("another number") {
    folder.data.at("lm_head.weight").back() ^= std::byte{1};
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) ==
          "training.init_from: " + folder.folder.path() +
              ": tensors 'lm_head.weight' and 'transformer.wte.weight' differ, but a tied model "
              "uses one matrix for both: if the head has its own matrix, set tie_word_embeddings "
              "in config.json and model.tied_embeddings to false");
  }
  SUBCASE("under the head's name alone, as some writers leave it") {
    folder.remove("transformer.wte.weight");
    folder.write("model.safetensors", folder.names());
    CHECK(folder.is_read(model, "gpt2"));
  }
}

TEST_CASE("a head that config.json makes its own must be in the file") {
  const ModelSpec model = model_of(ModelFamily::kLlama);
  Folder folder("llama");
  folder.remove("lm_head.weight");
  folder.write("model.safetensors", folder.names());
  CHECK(folder.error(model) == "training.init_from: " + folder.folder.path() +
                                   " has no tensor 'lm_head.weight': tie_word_embeddings in "
                                   "config.json and model.tied_embeddings are false; if the head "
                                   "uses the embedding's matrix, set both to true");
}

TEST_CASE("prefixes of PyTorch's wrappers are taken off") {
  const ModelSpec model = model_of(ModelFamily::kLlama);
  Folder folder("llama");
  const auto reads = [&](const auto& renamed) {
    folder.rename_all(renamed);
    folder.write("model.safetensors", folder.names());
    CHECK(folder.is_read(model, "llama"));
  };
  SUBCASE("DDP") {
    reads([](const std::string& name) { return "module." + name; });
  }
  SUBCASE("torch.compile") {
    reads([](const std::string& name) { return "_orig_mod." + name; });
  }
  SUBCASE("both") {
    reads([](const std::string& name) { return "module._orig_mod.module." + name; });
  }
  SUBCASE("a trainer's own attribute") {
    reads([](const std::string& name) { return "model." + name; });
  }
  SUBCASE("the body alone is compiled") {
    reads([](const std::string& name) {
      return name.starts_with("model.") ? "model._orig_mod." + name.substr(6) : name;
    });
  }
  SUBCASE("the body's own names") {
    reads(
        [](const std::string& name) { return name.starts_with("model.") ? name.substr(6) : name; });
  }
  SUBCASE("one that only some have is refused") {
    folder.copy_as("model.norm.weight", "module.model.norm.weight");
    folder.remove("model.norm.weight");
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) ==
          "training.init_from: " + folder.folder.path() +
              " has no tensor 'model.norm.weight', only 'module.model.norm.weight': a prefix "
              "module., model. or transformer. is removed only if all tensors have it");
  }
  SUBCASE("two of one name are refused") {
    folder.copy_as("model.norm.weight", "_orig_mod.model.norm.weight");
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) ==
          "training.init_from: " + folder.folder.path() +
              ": tensors '_orig_mod.model.norm.weight' and 'model.norm.weight' both have the "
              "model's name 'model.norm.weight'");
  }
}

TEST_CASE("Git LFS pointers are told from the files that they stand for") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  folder.write("model.safetensors", folder.names());
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json"}) {
    INFO(name);
    const std::string path = folder.folder / name;
    const std::string before = fs::exists(path) ? text_of(path) : "{}";
    std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\n"
                           "oid sha256:4d7a2146\nsize 1503300328\n";
    const std::string error = folder.error(model);
    CHECK(error.ends_with(
        path +
        ": this is a Git LFS pointer to 1503300328 bytes, not the file itself; run git lfs "
        "pull"));
    std::ofstream(path, std::ios::binary) << before;
  }
  CHECK(folder.is_read(model, "gpt2"));
}

TEST_CASE(
    "a folder that may hold two models is refused, one without safetensors says what it has") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  const std::string start = "training.init_from: " + folder.folder.path();
  const std::string neither =
      start + " holds neither model.safetensors nor model.safetensors.index.json";
  SUBCASE("both") {
    folder.write("model.safetensors", folder.names());
    std::ofstream(folder.folder / "model.safetensors.index.json") << "{}";
    CHECK(folder.error(model) ==
          start +
              " holds both model.safetensors and model.safetensors.index.json, whose weights may "
              "differ: remove one");
  }
  SUBCASE("pickled") {
    std::ofstream(folder.folder / "pytorch_model.bin") << "x";
    CHECK(folder.error(model) ==
          neither +
              ", only pytorch_model.bin, a pickle, which smp does not read: load it with "
              "transformers and write safetensors with save_pretrained()");
  }
  SUBCASE("shards") {
    folder.write("model-00001-of-00001.safetensors", folder.names());
    CHECK(folder.error(model) == neither +
                                     ", only model-00001-of-00001.safetensors: download "
                                     "model.safetensors.index.json too, which lists the shards");
  }
  SUBCASE("a link of a cache whose file is gone") {
    fs::create_symlink("../blobs/none", folder.folder / "model.safetensors");
    CHECK(folder.error(model) == neither + ": model.safetensors is a link to a missing file");
  }
}

TEST_CASE("weights that are not finite are refused before anything is trained from them") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  const std::string name = "transformer.wte.weight";
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    folder.convert(type);
    const float infinite = std::numeric_limits<float>::infinity();
    safetensors::convert_numbers(DType::kF32, reinterpret_cast<const std::byte*>(&infinite), 1,
                                 type, folder.data.at(name).data(), 1);
    folder.write("model.safetensors", folder.names());
    CHECK(error_of([&] { folder.is_read(model, "gpt2"); }) ==
          "training.init_from: " + folder.folder.path() + ": tensor '" + name +
              "' holds inf or nan: use weights saved before they became non-finite");
  }
}

TEST_CASE("weights of another model are refused by name") {
  const ModelSpec model = model_of(ModelFamily::kGpt2);
  Folder folder("gpt2");
  const std::string start = "training.init_from: " + folder.folder.path();
  SUBCASE("no file") {
    CHECK(folder.error(model) ==
          start + " holds neither model.safetensors nor model.safetensors.index.json");
  }
  SUBCASE("no config") {
    fs::remove(folder.folder / "config.json");
    CHECK(folder.error(model) == "training.init_from: cannot read " +
                                     (folder.folder / "config.json") +
                                     ": No such file or directory");
  }
  SUBCASE("a tensor too few") {
    auto names = folder.names();
    names.erase("transformer.ln_f.bias");
    folder.write("model.safetensors", names);
    CHECK(folder.error(model) == start + " has no tensor 'transformer.ln_f.bias'");
  }
  SUBCASE("a tensor too many") {
    folder.copy_as("transformer.ln_f.bias", "score.bias");
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) == start + ": tensor 'score.bias' is not in this model");
  }
  SUBCASE("another shape") {
    folder.entries["transformer.ln_f.bias"].shape = {8};
    folder.entries["transformer.ln_f.bias"].end = 32;
    folder.data["transformer.ln_f.bias"].resize(32);
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) == start +
                                     ": tensor 'transformer.ln_f.bias' is F32 [8]; the model needs "
                                     "a floating-point type and [16]");
  }
  SUBCASE("whole numbers") {
    folder.entries["transformer.ln_f.bias"].dtype = DType::kI32;
    folder.write("model.safetensors", folder.names());
    CHECK(folder.error(model) == start +
                                     ": tensor 'transformer.ln_f.bias' is I32 [16]; the model "
                                     "needs a floating-point type and [16]");
  }
  SUBCASE("a torn file") {
    folder.write("model.safetensors", folder.names());
    fs::resize_file(folder.folder / "model.safetensors", 50000);
    CHECK(folder.error(model).find("model.safetensors: the tensors take ") != std::string::npos);
  }
}

}  // namespace smp
