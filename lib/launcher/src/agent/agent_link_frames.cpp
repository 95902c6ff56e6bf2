#include <fmt/format.h>

#include "agent/agent_link.h"
#include "smp/plan/base/errors.h"

// Frames from an agent about its own host and the hosts below it.
namespace smp::agent {
namespace {

constexpr size_t kMostUsage = 16;  // samples of a host that were not taken yet

std::string short_build(const std::string& build) {
  return build.empty() ? "unknown" : build.substr(0, 12);
}

}  // namespace

size_t AgentLink::place_of(wire::PayloadReader& reader) const {
  const uint64_t place = reader.number();
  if (place == 0 || place >= places_.size())
    throw wire::ProtocolError("a message in the name of a host that it does not relay");
  return static_cast<size_t>(place);
}

void AgentLink::on_hello(const HelloMessage& message) {
  if (message.protocol != kProtocolVersion || message.build != welcome_.build)
    return fail(
        fmt::format("its smp-launch is another build (protocol {}, build {}; the launcher has {}, "
                    "{}): install the same build on every host",
                    message.protocol, short_build(message.build), kProtocolVersion,
                    short_build(welcome_.build)));
  channel_->send(reach::FrameType::kWelcome, encode(welcome_));
}

int AgentLink::running_process(wire::PayloadReader& reader) const {
  const int process = reader.small_number();
  if (running_.count(process) == 0)
    throw wire::ProtocolError("a message in the name of a rank of another host");
  return process;
}

void AgentLink::on_frame(const reach::Frame& frame, job::HostEvents& events) {
  wire::PayloadReader reader(frame.payload);
  switch (frame.type) {
    case reach::FrameType::kHeartbeat: return;
    case reach::FrameType::kHello: return on_hello(decode_hello(frame.payload));
    case reach::FrameType::kRefused: return fail(std::string(reader.text()));
    case reach::FrameType::kReady:
      state_ = State::kReady;
      return on_ready(0, decode_ready(frame.payload));
    case reach::FrameType::kBelow: {
      const size_t place = place_of(reader);
      return on_ready(place, decode_ready(reader.text()));
    }
    case reach::FrameType::kUnreached: {
      const size_t place = place_of(reader);
      const bool through_other = reader.number() != 0;
      return on_unreached(place, {std::string(reader.text()), through_other});
    }
    case reach::FrameType::kFilesTaken: pushed_ = reader.number(); return;
    case reach::FrameType::kSignalled: {
      const int number = reader.small_number();
      return events.on_signalled(number, std::string(reader.text()));
    }
    case reach::FrameType::kUsage: return on_usage(frame.payload);
    case reach::FrameType::kFinished:
      left_behind_ = reader.small_number();
      state_ = State::kFinished;
      return;
    default: return on_process_frame(frame.type, reader, events);
  }
}

void AgentLink::on_process_frame(reach::FrameType type, wire::PayloadReader& reader,
                                 job::HostEvents& events) {
  switch (type) {
    // Output and stacks of a process can arrive after its end.
    case reach::FrameType::kOutput: {
      const int process = reader.small_number();
      if (started_.count(process) == 0)
        throw wire::ProtocolError("output in the name of a rank of another host");
      const job::Stream stream = reader.number() != 0 ? job::Stream::kErr : job::Stream::kOut;
      const std::chrono::system_clock::time_point time(
          std::chrono::milliseconds(static_cast<int64_t>(reader.number())));
      return events.on_output(process, stream, reader.text(), time);
    }
    case reach::FrameType::kStacksShown: return events.on_stacks_shown(reader.small_number());
    case reach::FrameType::kLost: {
      const int process = running_process(reader);
      running_.erase(process);
      const bool through_other = reader.number() != 0;
      return events.on_lost(process, {std::string(reader.text()), through_other});
    }
    case reach::FrameType::kEnded: {
      const int process = running_process(reader);
      running_.erase(process);
      return events.on_ended(process, decode_end(reader));
    }
    case reach::FrameType::kStopped: {
      const int process = running_process(reader);
      return events.on_stopped(process, reader.number() != 0);
    }
    case reach::FrameType::kNotPermitted: return events.on_not_permitted(running_process(reader));
    case reach::FrameType::kStartFailed: {
      const int process = running_process(reader);
      running_.erase(process);
      return events.on_start_failed(process, std::string(reader.text()));
    }
    case reach::FrameType::kProgress: {
      const int process = running_process(reader);
      progress_[process] = decode_progress(reader);
      return;
    }
    case reach::FrameType::kInputTaken: {
      const int process = running_process(reader);
      input_taken_[process] = reader.number();
      return;
    }
    default: throw wire::ProtocolError("a message that is not for the launcher");
  }
}

void AgentLink::on_usage(std::string_view sample) {
  try {
    if (usage_.size() >= kMostUsage * places_.size()) usage_.erase(usage_.begin());
    usage_.push_back(system::parse_usage(sample));
    if (usage_.back().host.empty()) usage_.back().host = host_.name;
  } catch (const ConfigError& error) {
    throw wire::ProtocolError(error.what());
  }
}

}  // namespace smp::agent
