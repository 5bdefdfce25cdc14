// Pages of HTML: page.html with data, and a script that shows them. Private to watch.
#pragma once

#include "qft/watch/run_view.h"

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft::watch {

/// Points of a curve in a page at most: more are no wider than a screen's dots.
inline constexpr std::size_t kPoints = 3000;
/// Points of all curves of the machine at most, and of all others: each GPU, node and run has some of its own.
inline constexpr std::size_t kAllPoints = 150'000;

/// [[step, value], ...], null for what is not finite; of more points than `most` the lowest and the highest of neighbours.
nlohmann::json points_of(const Curve& curve, std::size_t most);

/// In the head of page.html, and so of every page: says that it is one of qft.
inline constexpr std::string_view kGenerator = R"(<meta name="generator" content="qft">)";

/// page.html, whose script finds `data` under that name, with `script` in it.
std::string fill_page(const nlohmann::json& data, std::string_view script);

}  // namespace qft::watch
