#include "smp/plan/data/token_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/data/byte_tokens.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/data/permutation.h"
#include "smp/plan/text/number_text.h"
#include "spec/choices.h"

namespace smp::data {
namespace {

constexpr const char* kPathKey = "training.data.path";
constexpr const char* kSourcesKey = "training.data.sources";
constexpr const char* kSetsKey = "training.evaluation.sets";

SampleForm form_of_job(const JobSpec& job) {
  return {.length = job.training.sequence_length,
          .sequences = sequences_per_sample(job.model),
          .pack = job.training.data_pack,
          .truncates = job.training.data_longer == "truncate",
          .has_mask = job.training.data_loss_mask.value_or(false)};
}

// Index in `all` where the first `parts` of a split end, rounded as Megatron does: to the nearest
// whole number, halves to the even one.
int64_t end_of_parts(const std::vector<int64_t>& split, size_t parts, int64_t all) {
  text::Int128 sum = 0, before = 0;
  for (size_t i = 0; i < split.size(); ++i) {
    sum += split[i];
    if (i < parts) before += split[i];
  }
  const text::Int128 whole = text::Int128{all} * before / sum,
                     rest = text::Int128{all} * before % sum;
  const bool up = 2 * rest > sum || (2 * rest == sum && whole % 2 == 1);
  return static_cast<int64_t>(whole + (up ? 1 : 0));
}

std::string sample_text(const SampleForm& form) {
  if (form.sequences == 2) {
    return fmt::format(
        "{} (2 x sequence_length {}: the encoder reads one sequence, the decoder writes the next)",
        2 * form.length, form.length);
  }
  return fmt::format("{} (sequence_length {} + 1)", form.length + 1, form.length);
}

}  // namespace

TokenData::TokenData(const JobSpec& job)
    : job_(job), form_(form_of_job(job)), evaluated_(evaluation_samples(job.training)) {
  const TrainingSpec& training = job_.training;
  if (training.data_sources.empty()) {
    add_source({.name = training.data_path,
                .path = training.data_path,
                .format = training.data_format,
                .weight = 1},
               kPathKey);
  }
  for (const MixtureSource& source : training.data_sources)
    add_source(source, fmt::format("{}[{}]", kSourcesKey, sources_.size() + 1));
  const bool has_ends = std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
    return source.stream->needs_ends();
  });
  if (training.data_end_of_document && !has_ends) {
    throw ConfigError(fmt::format("training.data.end_of_document: leave the key out for {}: {}",
                                  sources_[0].name,
                                  sources_[0].stream->format() == DataFormat::kText
                                      ? "each file of text is one document"
                                      : "the ends of documents are in its index"));
  }
  std::vector<double> weights;
  for (const MixtureSource& source : training.data_sources) weights.push_back(source.weight);
  if (weights.empty()) weights.push_back(1);
  const std::vector<int64_t> whole = Mixture::whole_weights(weights);
  mixture_ = std::make_unique<const Mixture>(whole);
  held_out_mixture_ = std::make_unique<const Mixture>(whole);
  const std::vector<int64_t> held_out = held_out_mixture_->counts(evaluated_);
  for (size_t i = 0; i < sources_.size(); ++i) {
    sources_[i].weight = whole[i];
    weights_ += whole[i];
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    sources_[i].held_out = training.evaluation.sets.empty() ? held_out[i] : 0;
    cut_parts(sources_[i]);
    check_size(sources_[i]);
  }
  for (const EvaluationSet& set : training.evaluation.sets) {
    if (evaluated_ > 0) add_set(set);
  }
  files_.identify(sources_.size() == 1 ? sources_[0].stream->folder() : ".");
  set_files_.identify(".");
}

StreamRequest TokenData::request_for(const std::string& path,
                                     const std::optional<DataFormat>& format,
                                     const std::string& key) const {
  const TrainingSpec& training = job_.training;
  return {.path = path,
          .format = format,
          .suffixes = training.data_suffixes,
          .end_of_document = training.data_end_of_document,
          .loss_mask = training.data_loss_mask,
          .vocab_size = job_.model.vocab_size,
          .key = key};
}

void TokenData::add_source(const MixtureSource& source, const std::string& key) {
  Source added;
  added.name = source.name.empty() ? source.path : source.name;
  added.key = key;
  added.stream =
      std::make_unique<const TokenStream>(request_for(source.path, source.format, key), files_);
  check_format(*added.stream);
  sources_.push_back(std::move(added));
}

void TokenData::check_format(const TokenStream& stream) const {
  const TrainingSpec& training = job_.training;
  if (stream.format() == DataFormat::kText) {
    if (const auto why = why_bytes_mean_nothing(job_)) throw ConfigError(*why);
    check_byte_vocabulary(job_.model);
  } else if (training.data_tokens) {
    throw ConfigError(fmt::format(
        "training.data.tokens: bytes needs text, but {} holds token ids ({}): leave the key out",
        stream.folder(), choice_name(stream.format())));
  }
  if (training.data_pack == Packing::kDocuments && !stream.knows_documents()) {
    throw ConfigError(fmt::format(
        "training.data.pack: documents: the ends of documents in {} are unknown: give the token "
        "that ends a document as training.data.end_of_document, or files with an index",
        stream.folder()));
  }
  if (training.data_pack != Packing::kPad) return;
  if (!stream.documents()) {
    throw ConfigError(
        fmt::format("training.data.pack: pad needs an index of documents, which {} does not have: "
                    "give Megatron's .bin and .idx, or write pack: documents",
                    stream.folder()));
  }
  if (form_.truncates) return;
  if (const int64_t longest = stream.longest_document(); longest > form_.length) {
    throw ConfigError(
        fmt::format("training.data.pack: pad: {} has a document of {} {}, more than "
                    "sequence_length {}: write training.data.longer: truncate, or pack: documents",
                    stream.folder(), longest, stream.unit(), form_.length));
  }
}

std::unique_ptr<const TokenSamples> TokenData::part_of(const TokenStream& stream, int64_t begin,
                                                       int64_t end) {
  return std::make_unique<const TokenSamples>(
      form_.pack == Packing::kPad ? TokenSamples::of_documents(stream, form_, begin, end, packed_)
                                  : TokenSamples(stream, form_, begin, end, packed_));
}

void TokenData::cut_parts(Source& source) {
  const TokenStream& stream = *source.stream;
  const std::vector<int64_t>& split = job_.training.data_split;
  const bool pads = form_.pack == Packing::kPad;
  if (split.empty()) {
    const int64_t all = pads ? stream.documents().value() : stream.tokens();
    // The windows that are held out touch none that is trained on.
    const int64_t kept = source.held_out == 0 ? 0
                         : pads               ? source.held_out
                                              : source.held_out * form_.sample_tokens() + 1;
    const int64_t trained = std::max<int64_t>(all - kept, 0);
    source.trained = part_of(stream, 0, trained);
    source.evaluated = part_of(stream, trained, all);
    return;
  }
  const bool by_document = pads || stream.format() == DataFormat::kMegatron;
  const int64_t all = by_document ? stream.documents().value() : stream.tokens();
  int64_t trained = end_of_parts(split, 1, all), evaluated = end_of_parts(split, 2, all);
  if (by_document && !pads) {
    trained = stream.document_begin(trained);
    evaluated = stream.document_begin(evaluated);
  }
  source.trained = part_of(stream, 0, trained);
  source.evaluated = part_of(stream, trained, evaluated);
}

void TokenData::check_size(const Source& source) const {
  const TrainingSpec& training = job_.training;
  const TokenStream& stream = *source.stream;
  const std::string unit = form_.pack == Packing::kPad ? "documents" : stream.unit();
  const int64_t all = form_.pack == Packing::kPad ? stream.documents().value() : stream.tokens();
  const int64_t trained = source.trained->count();
  const std::string& where = stream.folder();
  const int64_t sample =
      form_.pack == Packing::kPad ? 1 : form_.sample_tokens() + (form_.sequences == 1 ? 1 : 0);
  if (all < sample) {
    throw ConfigError(fmt::format("{}: {} holds {} {}, fewer than one sample of {}", source.key,
                                  where, all, unit, sample_text(form_)));
  }
  if (training.data_split.empty() && source.held_out > 0 &&
      (trained < 1 || source.evaluated->count() < source.held_out)) {
    throw ConfigError(
        fmt::format("training.evaluation.samples: {} holds {} {}, too few for {} held-out samples "
                    "of {} {} and one to train on",
                    where, all, unit, source.held_out,
                    form_.pack == Packing::kPad ? 1 : form_.sample_tokens(), unit));
  }
  if (!training.data_split.empty() &&
      (trained < 1 || source.evaluated->count() < source.held_out)) {
    throw ConfigError(
        fmt::format("training.data.split: [{}] of the {} {} of {} gives {} samples to train on and "
                    "{} to evaluate on; at least 1 and {} are needed",
                    fmt::join(training.data_split, ", "), all, unit, where, trained,
                    source.evaluated->count(), source.held_out));
  }
  SMP_CHECK(trained >= 1);
  const int64_t batch = training.global_batch.value_or(1);
  const auto share =
      static_cast<int64_t>((text::Int128{batch} * source.weight + weights_ - 1) / weights_);
  if (share <= 1 || trained >= share) return;
  throw ConfigError(
      fmt::format("{}: {} holds {} {}, {} samples of {} to train on, fewer than {} of {}: give "
                  "more data, or a smaller training.global_batch",
                  source.key, where, all, unit, trained,
                  form_.pack == Packing::kPad ? 1 : form_.sample_tokens(),
                  sources_.size() == 1 ? "one batch" : "its share of one batch", share));
}

void TokenData::add_set(const EvaluationSet& set) {
  Set added;
  const std::string key = fmt::format("{}: {}", kSetsKey, set.name);
  added.name = set.name;
  added.stream =
      std::make_unique<const TokenStream>(request_for(set.path, set.format, key), set_files_);
  check_format(*added.stream);
  const TokenStream& stream = *added.stream;
  const bool pads = form_.pack == Packing::kPad;
  added.samples = part_of(stream, 0, pads ? stream.documents().value() : stream.tokens());
  if (added.samples->count() < evaluated_) {
    throw ConfigError(fmt::format(
        "{}: {} holds {} samples of {} tokens, fewer than training.evaluation.samples ({})", key,
        stream.folder(), added.samples->count(), form_.sample_tokens(), evaluated_));
  }
  sets_.push_back(std::move(added));
}

SamplePlace TokenData::place(int64_t step, int64_t sample) const {
  const int64_t number = step * job_.training.global_batch.value_or(1) + sample;
  const Mixture::Turn turn = mixture_->at(number);
  const int64_t samples = sources_[turn.source].trained->count();
  const int64_t epoch = turn.sample / samples;
  const Permutation order(job_.training.seed, turn.source, epoch, samples);
  return {turn.source, epoch, order(turn.sample % samples)};
}

// Behind the reads, each file once.
void TokenData::check_read(const OpenFiles& files, ReadScratch& scratch) const {
  std::vector<size_t>& touched = scratch.touched;
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const size_t file : touched) files.check_unchanged(file);
}

void TokenData::read(int64_t step, int64_t first, int64_t count, const TokenBuffers& out) const {
  ReadScratch scratch;
  for (int64_t k = 0; k < count; ++k) {
    const SamplePlace at = place(step, first + k);
    sources_[at.source].trained->read(at.sample, k, count, out, scratch);
  }
  check_read(files_, scratch);
}

void TokenData::read_held_out(size_t set, int64_t first, int64_t count,
                              const TokenBuffers& out) const {
  ReadScratch scratch;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t sample = std::min(first + k, evaluated_ - 1);
    if (sets_.empty()) {
      const Mixture::Turn turn = held_out_mixture_->at(sample);
      sources_[turn.source].evaluated->read(turn.sample, k, count, out, scratch);
    } else {
      sets_.at(set).samples->read(sample, k, count, out, scratch);
    }
    if (first + k == sample || out.targets == nullptr) continue;
    std::fill_n(out.targets + k * form_.length, form_.length, kNoTarget);
  }
  check_read(sets_.empty() ? files_ : set_files_, scratch);
}

std::vector<std::string> TokenData::evaluation_sets() const {
  if (evaluated_ == 0) return {};
  std::vector<std::string> names;
  for (const Set& set : sets_) names.push_back(set.name);
  if (names.empty()) names.emplace_back();
  return names;
}

std::vector<TokenData::Piece> TokenData::pieces(const SamplePlace& place) const {
  const Source& source = sources_[place.source];
  ReadScratch scratch;
  std::vector<Piece> out;
  for (const DocumentPiece& piece : source.trained->pieces(place.sample, scratch))
    out.push_back({piece, source.stream->place_of(piece.begin)});
  return out;
}

std::string TokenData::source_name(size_t source) const { return sources_[source].name; }

std::vector<TokenManifest> TokenData::manifests() const {
  std::vector<TokenManifest> found;
  for (const Source& source : sources_) {
    const std::vector<TokenManifest> own = source.stream->manifests();
    found.insert(found.end(), own.begin(), own.end());
  }
  return found;
}

std::vector<double> TokenData::epochs(int64_t samples) const {
  std::vector<double> epochs;
  for (const Source& source : sources_) {
    const double share = static_cast<double>(source.weight) / static_cast<double>(weights_);
    epochs.push_back(static_cast<double>(samples) * share /
                     static_cast<double>(source.trained->count()));
  }
  return epochs;
}

int64_t TokenData::trained_tokens() const {
  int64_t tokens = 0;
  for (const Source& source : sources_) tokens += source.trained->end() - source.trained->begin();
  return tokens;
}

std::string TokenData::description() const {
  std::vector<std::string> lines;
  for (const Source& source : sources_) {
    const TokenStream& stream = *source.stream;
    const std::string files = fmt::format("in {} file{} under {}", stream.shards(),
                                          stream.shards() == 1 ? "" : "s", stream.folder());
    std::string line;
    if (stream.format() == DataFormat::kText) {
      line = fmt::format("{:.1f} MiB of text {}; each byte is one of 256 tokens",
                         static_cast<double>(stream.tokens()) / (1 << 20), files);
    } else {
      line = fmt::format("{} tokens ({}) {}", stream.tokens(), choice_name(stream.format()), files);
      if (const auto documents = stream.documents())
        line += fmt::format("; {} documents", *documents);
      line += fmt::format("; {} samples an epoch", source.trained->count());
    }
    if (sources_.size() > 1) line = fmt::format("weight {}: {}", source.weight, line);
    lines.push_back(line);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace smp::data
