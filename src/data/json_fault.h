// What is wrong with a text that is no JSON, said so that a person can mend it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::data {

/// "at byte 31: a comma before '}': remove it". A parser gave up at byte `at` (from 0; text.size(): at the end) for
/// `reason`, the what() of nlohmann's exception, whose words are kept where nothing better is known.
std::string describe_json_fault(std::string_view text, std::size_t at, std::string_view reason);

}  // namespace qft::data
