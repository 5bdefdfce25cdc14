// Builds HTML pages: page.html with data and a script that displays them. Private to watch.
#pragma once

#include "qft/watch/run_view.h"

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft::watch {

/// Most points per curve in a page: a screen has fewer dots.
inline constexpr std::size_t kPoints = 3000;
/// Most points of all machine curves together, and of all other curves together: every GPU, node and run adds curves.
inline constexpr std::size_t kAllPoints = 150'000;

/// Returns [[step, value], ...] with null for values that are not finite. A curve with more points than `most` keeps the lowest
/// and the highest value of neighbouring points.
nlohmann::json points_of(const Curve& curve, std::size_t most);

/// Tag in page.html's head that marks every page as made by qft.
inline constexpr std::string_view kGenerator = R"(<meta name="generator" content="qft">)";

/// Returns page.html with `script`, and with `data` under the name that the script expects.
std::string fill_page(const nlohmann::json& data, std::string_view script);

}  // namespace qft::watch
