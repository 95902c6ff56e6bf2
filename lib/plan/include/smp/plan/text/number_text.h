#pragma once

#include <optional>
#include <string>
#include <string_view>

// The number that a text writes under the strict rules of job files, and the likely meaning of a
// text that breaks them. Pure; safe from any thread.
namespace smp::text {

enum class Scale {
  kNone,   // plain whole numbers
  kCount,  // and 4M (= 4,000,000), 4Mi (= 4,194,304)
  kBytes,  // and 40GB, 40GiB
};

__extension__ using Int128 = __int128;         // exact products of a 64-bit number and a unit
constexpr Int128 kWideMax = Int128{1} << 100;  // beyond every range; sums stop here
std::string wide_text(Int128 value);

// The whole number that `text` writes, exactly as the rules want it; nothing otherwise.
std::optional<Int128> strict_whole(std::string_view text, Scale scale);

// The likely meaning of a text that is no whole number: the words after "write".
std::optional<std::string> meant_whole(const std::string& text, Scale scale);

// The number that `text` writes: digits with an optional fraction and exponent or unit.
std::optional<double> strict_number(std::string_view text, Scale scale);

// The same for a number with a fraction.
std::optional<std::string> meant_number(const std::string& text, Scale scale);

// "has the unknown unit 'GiBs', did you mean 'GiB'?"
std::optional<std::string> unit_problem(const std::string& text, Scale scale);

// Whether the text is a number with a fraction and a unit that fit the scale, such as 1.5B.
bool has_fraction(std::string_view text, Scale scale);

// Whether the text is a number with an exponent, whatever its size.
bool has_exponent(std::string_view text);

}  // namespace smp::text
