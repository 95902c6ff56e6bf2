#include "agent/agent_messages.h"

#include <array>
#include <bit>

namespace smp::agent {
namespace {

constexpr uint64_t kMostTexts = 1 << 20;  // of one list

// The numbers of a HostHealth, in the order of the protocol.
template <typename Health>
auto numbers_of(Health& health) {
  return std::array{&health.clock_ms,          &health.cpus,      &health.memory_bytes,
                    &health.memory_free_bytes, &health.shm_bytes, &health.shm_free_bytes,
                    &health.open_files,        &health.processes, &health.locked_bytes};
}

void write_notes(const std::vector<health::GpuNote>& notes, wire::PayloadWriter& writer) {
  writer.number(notes.size());
  for (const health::GpuNote& note : notes)
    writer.number(static_cast<uint64_t>(note.gpu)).text(note.text);
}

std::vector<health::GpuNote> read_notes(wire::PayloadReader& reader) {
  const uint64_t count = reader.number();
  if (count > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  std::vector<health::GpuNote> notes;
  for (uint64_t i = 0; i < count; ++i) {
    const int gpu = reader.small_number();
    notes.push_back({gpu, std::string(reader.text())});
  }
  return notes;
}

void write_health(const health::HostHealth& health, wire::PayloadWriter& writer) {
  writer.text(health.name).text(health.kernel).text(health.driver).list(health.gpus);
  const health::GpuHealth& gpus = health.gpu_health;
  for (const auto* notes : {&gpus.errors, &gpus.logged, &gpus.held_by}) write_notes(*notes, writer);
  for (const int64_t* number : numbers_of(health)) writer.number(static_cast<uint64_t>(*number));
}

health::HostHealth read_health(wire::PayloadReader& reader) {
  health::HostHealth health;
  health.name = reader.text();
  health.kernel = reader.text();
  health.driver = reader.text();
  health.gpus = reader.list();
  health::GpuHealth& gpus = health.gpu_health;
  for (auto* notes : {&gpus.errors, &gpus.logged, &gpus.held_by}) *notes = read_notes(reader);
  for (int64_t* number : numbers_of(health)) *number = static_cast<int64_t>(reader.number());
  return health;
}

}  // namespace

std::string encode(const HelloMessage& message) {
  return wire::PayloadWriter().number(message.protocol).text(message.build).bytes();
}

HelloMessage decode_hello(std::string_view bytes) {
  wire::PayloadReader reader(bytes);
  HelloMessage message;
  message.protocol = static_cast<uint32_t>(reader.number());
  message.build = reader.text();
  return message;
}

std::string encode(const WelcomeMessage& message) {
  wire::PayloadWriter writer;
  writer.number(message.protocol)
      .text(message.build)
      .text(message.folder)
      .number(message.heartbeat_timeout_ms)
      .number(message.reserves_port ? 1 : 0)
      .number(message.asks_health ? 1 : 0)
      .number(message.asks_topology ? 1 : 0)
      .number(message.usage_ms)
      .number(static_cast<uint64_t>(message.fan_out))
      .text(message.transport.via)
      .text(message.transport.ssh_arguments)
      .text(message.transport.agent)
      .number(message.below.size());
  for (const hosts::HostSpec& host : message.below)
    writer.text(host.name).text(host.user).number(static_cast<uint64_t>(host.port));
  writer.number(message.shared.size());
  for (const SharedFile& file : message.shared) writer.text(file.path).number(file.sum);
  writer.number(message.told_signals.size());
  for (const int number : message.told_signals) writer.number(static_cast<uint64_t>(number));
  return writer.bytes();
}

WelcomeMessage decode_welcome(std::string_view bytes) {
  wire::PayloadReader reader(bytes);
  WelcomeMessage message;
  message.protocol = static_cast<uint32_t>(reader.number());
  message.build = reader.text();
  message.folder = reader.text();
  message.heartbeat_timeout_ms = static_cast<uint32_t>(reader.number());
  message.reserves_port = reader.number() != 0;
  message.asks_health = reader.number() != 0;
  message.asks_topology = reader.number() != 0;
  message.usage_ms = static_cast<uint32_t>(reader.number());
  message.fan_out = reader.small_number();
  message.transport.via = reader.text();
  message.transport.ssh_arguments = reader.text();
  message.transport.agent = reader.text();
  const uint64_t below = reader.number();
  if (below > hosts::kMostHosts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < below; ++i) {
    hosts::HostSpec host;
    host.name = reader.text();
    host.user = reader.text();
    host.port = reader.small_number();
    message.below.push_back(std::move(host));
  }
  const uint64_t shared = reader.number();
  if (shared > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < shared; ++i) {
    const std::string_view path = reader.text();
    message.shared.push_back({std::string(path), reader.number()});
  }
  const uint64_t signals = reader.number();
  if (signals > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < signals; ++i) message.told_signals.insert(reader.small_number());
  return message;
}

std::string encode(const ReadyMessage& message) {
  wire::PayloadWriter writer;
  writer.text(message.name)
      .number(static_cast<uint64_t>(message.cpus))
      .number(static_cast<uint64_t>(message.port))
      .list(message.addresses)
      .text(message.network)
      .text(message.reached_at)
      .text(message.topology)
      .number(message.health ? 1 : 0);
  if (message.health) write_health(*message.health, writer);
  return writer.bytes();
}

ReadyMessage decode_ready(std::string_view bytes) {
  wire::PayloadReader reader(bytes);
  ReadyMessage message;
  message.name = reader.text();
  message.cpus = reader.small_number();
  message.port = reader.small_number();
  message.addresses = reader.list();
  message.network = reader.text();
  message.reached_at = reader.text();
  message.topology = reader.text();
  if (reader.number() != 0) message.health = read_health(reader);
  return message;
}

std::string encode(const StartMessage& message, const job::Command& before) {
  wire::PayloadWriter writer;
  writer.number(static_cast<uint64_t>(message.process))
      .number(static_cast<uint64_t>(message.place))
      .list(message.command.arguments);
  const auto& variables = message.command.environment;
  writer.number(variables.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    const bool same = i < before.environment.size() && before.environment[i] == variables[i];
    writer.number(same ? 1 : 0);
    if (!same) writer.text(variables[i]);
  }
  writer.text(message.command.error_file).number(message.command.cpus.size());
  for (const int cpu : message.command.cpus) writer.number(static_cast<uint64_t>(cpu));
  writer.number(message.command.reads_input ? 1 : 0).number(message.command.held_signals.size());
  for (const int number : message.command.held_signals)
    writer.number(static_cast<uint64_t>(number));
  return writer.bytes();
}

StartMessage decode_start(std::string_view bytes, const job::Command& before) {
  wire::PayloadReader reader(bytes);
  StartMessage message;
  message.process = reader.small_number();
  message.place = reader.small_number();
  message.command.arguments = reader.list();
  if (message.command.arguments.empty()) throw wire::ProtocolError("a rank without a program");
  const uint64_t count = reader.number();
  if (count > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < count; ++i) {
    const bool same = reader.number() != 0;
    if (same && i >= before.environment.size())
      throw wire::ProtocolError("a variable of no command");
    message.command.environment.push_back(same ? before.environment[i]
                                               : std::string(reader.text()));
  }
  message.command.error_file = reader.text();
  const uint64_t cpus = reader.number();
  if (cpus > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < cpus; ++i) message.command.cpus.push_back(reader.small_number());
  message.command.reads_input = reader.number() != 0;
  const uint64_t held = reader.number();
  if (held > kMostTexts) throw wire::ProtocolError("a message whose list is too long");
  for (uint64_t i = 0; i < held; ++i) message.command.held_signals.push_back(reader.small_number());
  return message;
}

std::string encode_end(int process, const process::ProcessEnd& end) {
  return wire::PayloadWriter()
      .number(static_cast<uint64_t>(process))
      .number(static_cast<uint64_t>(end.exit_code))
      .number(static_cast<uint64_t>(end.signal))
      .number(end.dumped_core ? 1 : 0)
      .number(end.out_of_memory ? 1 : 0)
      .text(end.last_words)
      .number(static_cast<uint64_t>(end.cpu_ms))
      .number(static_cast<uint64_t>(end.peak_memory_bytes))
      .list(end.gpu_errors)
      .number(static_cast<uint64_t>(end.pid))
      .number(static_cast<uint64_t>(end.memory_limit_bytes))
      .bytes();
}

std::string encode_progress(int process, const runinfo::RankProgress& progress) {
  const auto of = [](int64_t value) { return static_cast<uint64_t>(value); };
  return wire::PayloadWriter()
      .number(static_cast<uint64_t>(process))
      .number(progress.posts)
      .number(of(progress.step))
      .number(of(progress.microbatch))
      .number(of(progress.layer))
      .text(progress.phase)
      .number(of(progress.collectives))
      .text(progress.collective)
      .number(progress.waiting ? 1 : 0)
      .number(of(progress.steps_done))
      .number(of(progress.steps))
      .number(std::bit_cast<uint64_t>(progress.loss))
      .number(std::bit_cast<uint64_t>(progress.tokens_per_s))
      .number(std::bit_cast<uint64_t>(progress.step_s))
      .bytes();
}

runinfo::RankProgress decode_progress(wire::PayloadReader& reader) {
  const auto number = [&] { return static_cast<int64_t>(reader.number()); };
  runinfo::RankProgress progress;
  progress.posts = reader.number();
  progress.step = number();
  progress.microbatch = number();
  progress.layer = number();
  progress.phase = reader.text();
  progress.collectives = number();
  progress.collective = reader.text();
  progress.waiting = reader.number() != 0;
  progress.steps_done = number();
  progress.steps = number();
  progress.loss = std::bit_cast<double>(reader.number());
  progress.tokens_per_s = std::bit_cast<double>(reader.number());
  progress.step_s = std::bit_cast<double>(reader.number());
  return progress;
}

process::ProcessEnd decode_end(wire::PayloadReader& reader) {
  process::ProcessEnd end;
  end.exit_code = reader.small_number();
  end.signal = reader.small_number();
  end.dumped_core = reader.number() != 0;
  end.out_of_memory = reader.number() != 0;
  end.last_words = reader.text();
  end.cpu_ms = static_cast<int64_t>(reader.number());
  end.peak_memory_bytes = static_cast<int64_t>(reader.number());
  end.gpu_errors = reader.list();
  end.pid = reader.small_number();
  end.memory_limit_bytes = static_cast<int64_t>(reader.number());
  return end;
}

}  // namespace smp::agent
