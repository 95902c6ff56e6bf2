#include "smp/rendezvous/wire/payload.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace smp::wire;

TEST_CASE("what a payload was given comes back in its order") {
  const std::vector<std::string> list = {"a", "", std::string("\0b", 2)};
  const std::string bytes = PayloadWriter()
                                .number(0x0102030405060708)
                                .text("text")
                                .list(list)
                                .number(uint64_t(-7))
                                .bytes();
  CHECK(bytes.substr(0, 8) == "\x08\x07\x06\x05\x04\x03\x02\x01");
  PayloadReader reader(bytes);
  CHECK(reader.number() == 0x0102030405060708);
  CHECK(reader.text() == "text");
  CHECK(reader.list() == list);
  CHECK_FALSE(reader.done());
  CHECK(reader.small_number() == -7);
  CHECK(reader.done());
}

TEST_CASE("a payload that is cut anywhere is refused") {
  const std::string bytes = PayloadWriter().number(1).text("text").list({"a", "b"}).bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    PayloadReader reader(std::string_view(bytes).substr(0, size));
    CHECK_THROWS_AS((reader.number(), reader.text(), reader.list()), ProtocolError);
  }
  PayloadReader large(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
  CHECK_THROWS_AS(large.list(), ProtocolError);
}
