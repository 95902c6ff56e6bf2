#include "smp/launcher/reach/frame_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace smp::reach {
namespace {

constexpr std::string_view kMark = "\x1esmp-agent\x1e";
constexpr size_t kHeaderBytes = 9;
constexpr size_t kMostTextBefore = 64 << 10;
constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kPiece = 1 << 20;  // written parts of the queue are dropped in pieces of this size

void put_u32(uint32_t value, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
}

uint32_t get_u32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

bool FrameReader::find_mark() {
  const size_t at = waiting_.find(kMark);
  if (at == waiting_.npos) {
    if (waiting_.size() > kMostTextBefore)
      throw wire::ProtocolError(
          fmt::format("no greeting of an agent within {} bytes", kMostTextBefore));
    text_before_ = waiting_;
    return false;
  }
  text_before_ = waiting_.substr(0, at);
  read_ = at + kMark.size();
  begun_ = true;
  return true;
}

bool FrameReader::next(Frame& frame) {
  if (!begun_ && !find_mark()) return false;
  const size_t left = waiting_.size() - read_;
  if (left >= kHeaderBytes) {
    const char* header = waiting_.data() + read_;
    const size_t length = get_u32(header);
    if (length > kMostPayloadBytes)
      throw wire::ProtocolError(fmt::format("a message of {} bytes", length));
    if (left >= kHeaderBytes + length) {
      const uint32_t sequence = get_u32(header + 5);
      if (sequence != sequence_)
        throw wire::ProtocolError(fmt::format("message {} instead of {}", sequence, sequence_));
      ++sequence_;
      frame.type = static_cast<FrameType>(header[4]);
      frame.payload = std::string_view(header + kHeaderBytes, length);
      read_ += kHeaderBytes + length;
      return true;
    }
  }
  waiting_.erase(0, read_);
  read_ = 0;
  return false;
}

void FrameWriter::append(FrameType type, std::string_view payload, std::string& bytes) {
  if (!begun_) bytes.append(kMark);
  begun_ = true;
  put_u32(static_cast<uint32_t>(payload.size()), bytes);
  bytes.push_back(static_cast<char>(type));
  put_u32(sequence_++, bytes);
  bytes.append(payload);
}

FrameChannel::FrameChannel(system::FileDescriptor in, system::FileDescriptor out)
    : in_(std::move(in)), out_(std::move(out)) {
  for (int number : {in_.number(), out_.number()})
    fcntl(number, F_SETFL, fcntl(number, F_GETFL) | O_NONBLOCK);
}

void FrameChannel::send(FrameType type, std::string_view payload) {
  if (!out_) return;
  writer_.append(type, payload, waiting_);
}

void FrameChannel::flush() {
  while (out_ && written_ < waiting_.size()) {
    const ssize_t size =
        write(out_.number(), waiting_.data() + written_, waiting_.size() - written_);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) out_.reset();  // it has gone: receive() will see the end of its side
    if (size > 0) written_ += static_cast<size_t>(size);
  }
  if (!out_ || written_ == waiting_.size()) {
    waiting_.clear();
    written_ = 0;
  } else if (written_ > kPiece) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
}

bool FrameChannel::receive(const std::function<void(const Frame&)>& on_frame) {
  if (!in_) return false;
  if (bytes_ == nullptr) bytes_ = std::make_unique_for_overwrite<char[]>(kReadBytes);
  const ssize_t size = read(in_.number(), bytes_.get(), kReadBytes);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  if (size == 0) return false;
  reader_.feed({bytes_.get(), static_cast<size_t>(size)});
  for (Frame frame; reader_.next(frame);) on_frame(frame);
  return true;
}

void FrameChannel::close() {
  in_.reset();
  out_.reset();
  waiting_.clear();
  written_ = 0;
}

}  // namespace smp::reach
