#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"
#include "smp/rendezvous/wire/payload.h"

// What smp-launch and an agent say to each other over a stream of bytes: a mark, then frames of
//   length (4 bytes, of the payload), type (1), sequence number (4), payload
// all little-endian. One thread.
namespace smp::reach {

enum class FrameType : uint8_t {
  kHeartbeat = 1,      // nothing to say; both ways
  kHello = 2,          // agent: who it is
  kWelcome = 3,        // launcher: who it is, and what the agent has to know before it starts ranks
  kReady = 4,          // agent: what there is on its host
  kRefused = 5,        // agent: why it cannot
  kStart = 6,          // launcher: a rank
  kSignal = 7,         // launcher: to a rank
  kHold = 8,           // launcher: leave output in the pipes, or do not
  kFinish = 9,         // launcher: end everything
  kOutput = 10,        // agent: of a rank
  kEnded = 11,         // agent: a rank has
  kStopped = 12,       // agent: a rank was stopped or continued
  kStartFailed = 13,   // agent: a rank could not be started
  kFinished = 14,      // agent: nothing is left
  kProgress = 15,      // agent: what a rank has posted
  kUsage = 16,         // agent: what the ranks have used
  kBelow = 17,         // agent: what there is on a host that it has reached
  kUnreached = 18,     // agent: why it has not reached one, or not any more
  kLost = 19,          // agent: a rank of a host that it does not reach any more
  kShowStacks = 20,    // launcher: of a rank, and by which debugger
  kStacksShown = 21,   // agent: that was all
  kFiles = 22,         // launcher: of a file for its host and those below
  kFilesTaken = 23,    // agent: so many of these have been taken by all
  kInput = 24,         // launcher: standard input of a rank; without bytes: its end
  kInputTaken = 25,    // agent: so many bytes of it have been
  kSignalled = 26,     // agent: its host has been told that ranks shall save a checkpoint
  kNotPermitted = 27,  // agent: a rank may not be signalled
};

constexpr size_t kMostPayloadBytes = 64 << 20;

struct Frame {
  FrameType type = FrameType::kHeartbeat;
  std::string_view payload;  // valid until the next call of the reader
};

// Cuts a stream into frames. Text before the mark is not ours: what a remote shell prints when it
// starts. It is kept for messages, up to a limit.
class FrameReader {
 public:
  void feed(std::string_view bytes) { waiting_.append(bytes); }
  // The next whole frame, if there is one. Throws ProtocolError.
  bool next(Frame& frame);
  bool begun() const { return begun_; }
  const std::string& text_before() const { return text_before_; }

 private:
  bool find_mark();

  std::string waiting_;
  size_t read_ = 0;  // bytes of waiting_ that were handed out
  bool begun_ = false;
  std::string text_before_;
  uint32_t sequence_ = 0;
};

// The mark and the frames, as bytes.
class FrameWriter {
 public:
  void append(FrameType type, std::string_view payload, std::string& bytes);

 private:
  bool begun_ = false;
  uint32_t sequence_ = 0;
};

// Both directions over two file descriptors that do not block.
class FrameChannel {
 public:
  FrameChannel(system::FileDescriptor in, system::FileDescriptor out);

  int in() const { return in_.number(); }
  int out() const { return out_.number(); }

  // Keeps a frame until flush(), so that many go at once, which writes what the other side takes.
  void send(FrameType type, std::string_view payload = {});
  void flush();
  bool wants_to_write() const { return !waiting_.empty(); }
  size_t waiting_bytes() const { return waiting_.size() - written_; }

  // Reads all that is there. False: the other side has gone. Throws ProtocolError.
  bool receive(const std::function<void(const Frame&)>& on_frame);
  bool begun() const { return reader_.begun(); }
  const std::string& text_before() const { return reader_.text_before(); }

  void close();

 private:
  system::FileDescriptor in_, out_;
  std::unique_ptr<char[]> bytes_;  // just read
  FrameReader reader_;
  FrameWriter writer_;
  std::string waiting_;
  size_t written_ = 0;  // bytes of waiting_
};

}  // namespace smp::reach
