// The terminal page.
#include "qft/core/units.h"
#include "qft/watch/page.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "members.h"
#include "text.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::watch {
namespace {

using nlohmann::json;

class Page {
 public:
  Page(const RunView& run, const PageOptions& options) : run_(run), o_(options) {}

  std::string text() {
    heading();
    progress();
    numbers();
    machine();
    checkpoints();
    for (const std::string& warning : run_.warnings) line(colored("1;33", "! " + plain(warning)));
    line("");
    curve();
    std::string all;
    if (lines_.size() > static_cast<std::size_t>(o_.height)) lines_.resize(static_cast<std::size_t>(o_.height));
    for (const std::string& l : lines_) all += l + "\n";
    return all;
  }

 private:
  void line(const std::string& text) { lines_.push_back(cut(text, o_.width)); }
  std::string colored(const char* code, const std::string& text) const {
    return o_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  /// Returns a member of run.json as text; empty if it is absent.
  std::string said(const char* key) const { return plain(text_in(run_.description, key)); }

  void heading() {
    const std::string name = said("name").empty() ? plain(run_.dir.lexically_normal().string()) : said("name");
    const char* color = run_.status == "silent" || run_.status == "failed" ? "1;31" : "1;32";
    line(fmt::format("{}  {}{}", colored("1", cut(name, o_.width / 3)), colored(color, run_.status), where()));
    const json model = member(run_.description, "model");
    if (!model.is_object()) return;
    line(fmt::format("{}: {} parameters, {} trained; {}", plain(text_in(model, "path")),
                     format_count(number_in(model, "parameters")), format_count(number_in(model, "trainable")),
                     said("strategy")));
  }

  std::string where() const {
    if (!run_.description.is_object()) return "";
    std::set<std::string> hosts;
    for (const json& host : member(run_.description, "hosts"))
      if (host.is_string()) hosts.insert(plain(host.get<std::string>()));
    const double ranks = number_in(run_.description, "ranks");
    return fmt::format("  {:.0f} rank{} on {}, {}", ranks, ranks == 1 ? "" : "s", fmt::join(hosts, ", "), said("device"));
  }

  /// The log has only the logged steps, kProgressFile has every step.
  void progress() {
    const json& at = run_.progress;
    const double logged = number_in(run_.last, "current_steps"), now = number_in(at, "step");
    const bool newer = now >= 0 && !(now <= logged);
    const double step = newer ? now : logged;
    if (const std::string phase = phase_words(); !phase.empty()) line(phase);
    if (!std::isfinite(step)) return;
    const double total = number_in(newer ? at : run_.last, "total_steps");
    const double share = total > 0 ? std::clamp(step / total, 0.0, 1.0) : 0;
    const int cells = std::max(10, o_.width / 3), full = static_cast<int>(share * cells);
    std::string bar;
    for (int i = 0; i < cells; ++i) bar += i < full ? "█" : "░";
    const double epoch = number_in(run_.last, "epoch");
    line(fmt::format("step {:.0f}/{:.0f}  {} {:.1f} %{}  {}", step, total, colored("36", bar), 100 * share,
                     std::isfinite(epoch) ? fmt::format("  epoch {:.2f}", epoch) : "", times(newer)));
  }

  /// Returns the current phase, unless the run is just training.
  std::string phase_words() const {
    if (run_.status != "running") return run_.last.is_null() && !run_.progress.is_object() ? "no step is logged yet" : "";
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"load", "loading the model and the data"},
        {"pack", "packing the data"},
        {"reference", "computing the reference's log probabilities"},
        {"eval", "evaluating"},
        {"save", "saving a checkpoint"},
        {"predict", "answering the evaluation set"},
        {"score", "scoring the evaluation set"},
        {"results", "writing the results"}};
    const std::string phase = plain(text_in(run_.progress, "phase"));
    if (phase.empty()) return run_.last.is_null() ? "no step is logged yet" : "";
    if (phase == "train")
      return number_in(run_.progress, "step") == number_in(run_.progress, "from_step") ? "in its first step" : "";
    const auto* known = std::ranges::find(kWords, phase, &std::pair<std::string_view, std::string_view>::first);
    return known == std::end(kWords) ? phase : std::string(known->second);
  }

  std::string times(bool newer) const {
    std::string gone = plain(text_in(run_.last, "elapsed_time")), left = plain(text_in(run_.last, "remaining_time", "-"));
    if (newer) {
      const json& at = run_.progress;
      const double seconds = number_in(at, "time") - number_in(at, "from_time");
      const double steps = number_in(at, "step") - number_in(at, "from_step");
      const double still = number_in(at, "total_steps") - number_in(at, "step");
      if (gone.empty()) gone = format_duration(seconds);
      left = format_duration(steps > 0 ? seconds * still / steps : NAN);
    }
    std::string text = fmt::format("{} elapsed", gone.empty() ? "-" : gone);
    if (run_.status == "running") text += fmt::format(", {} left", left);
    return text;
  }

  void numbers() {
    std::string text;
    const auto add = [&](const char* label, const char* metric, const char* form) {
      if (const double value = run_.now(metric); run_.curves.contains(metric))
        text += fmt::format("{}{} {}", text.empty() ? "" : "  ", label, fmt::format(fmt::runtime(form), value));
    };
    add("loss", "loss", "{:.4f}");
    add("eval_loss", "eval_loss", "{:.4f}");
    add("lr", "learning_rate", "{:.3e}");
    add("grad_norm", "grad_norm", "{:.4f}");
    if (!text.empty()) line(text);
    if (!run_.last.is_object()) return;
    text = fmt::format("{:.0f} tokens/s  {}", run_.now("tokens_per_second"), spark("tokens_per_second"));
    if (const double seen = run_.now("num_input_tokens_seen"); std::isfinite(seen))
      text += fmt::format("  {} tokens so far", format_count(seen));
    line(text);
    phases();
  }

  /// Returns the last values of a metric as a row of bars.
  std::string spark(const std::string& metric) const {
    static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const auto it = run_.curves.find(metric);
    if (it == run_.curves.end()) return "";
    const Curve& curve = it->second;
    const std::size_t first = curve.size() > 30 ? curve.size() - 30 : 0;
    double most = 0;
    for (std::size_t i = first; i < curve.size(); ++i)
      if (std::isfinite(curve[i].second)) most = std::max(most, curve[i].second);
    std::string bars;
    for (std::size_t i = first; i < curve.size() && most > 0; ++i)
      bars += kBars[std::isfinite(curve[i].second) ? static_cast<int>(std::clamp(curve[i].second / most * 7, 0.0, 7.0)) : 0];
    return bars;
  }

  void phases() {
    const json seconds = member(run_.last, "seconds");
    double sum = 0;
    for (const auto& [name, value] : seconds.items()) sum += value.is_number() ? value.get<double>() : 0;
    if (sum <= 0) return;
    std::string text = "time goes to";
    for (const auto& [name, value] : seconds.items())
      if (value.is_number() && value.get<double>() > 0.005 * sum)
        text += fmt::format("  {} {:.0f} %", plain(name), 100 * value.get<double>() / sum);
    line(text);
  }

  void machine() {
    std::string text;
    if (const double most = run_.now("memory_peak"); std::isfinite(most)) {
      text = fmt::format("memory of a rank {} at most", format_bytes(most));
      const json predicted = member(run_.description, "memory");
      if (const double total = number_in(predicted, "total"); std::isfinite(total))
        text += fmt::format(", {} predicted, {} available", format_bytes(total), format_bytes(number_in(predicted, "available")));
    }
    if (!text.empty()) line(text);
    text.clear();
    for (const auto& [name, values] : run_.system.items()) {
      std::vector<std::string> shown;
      for (const json& v : values)
        if (v.is_number())
          shown.push_back(v.get<double>() >= 1e6 ? format_bytes(v.get<double>()) : fmt::format("{:.0f}", v.get<double>()));
      if (shown.empty()) continue;
      const std::string next = fmt::format("{} {}", plain(name), fmt::join(shown, " "));
      if (text.size() + next.size() + 2 > static_cast<std::size_t>(o_.width)) line(std::exchange(text, ""));
      text += (text.empty() ? "" : "  ") + next;
    }
    if (!text.empty()) line(text);
  }

  void checkpoints() {
    if (run_.checkpoints.empty()) {
      if (run_.status == "running") line("no checkpoint yet");
      return;
    }
    const CheckpointSeen& newest = run_.checkpoints.back();
    line(fmt::format("last checkpoint {}, {} ago ({} there)", plain(newest.name),
                     format_duration(std::max(0.0, o_.now - newest.time)), run_.checkpoints.size()));
  }

  void curve() {
    const auto find = [&](const std::string& name) {
      const auto it = run_.curves.find(name);
      return it == run_.curves.end() ? Curve() : it->second;
    };
    const Curve beside = o_.metric == "loss" ? find("eval_loss") : Curve();
    line(colored("36", plain(o_.metric)) + (beside.empty() ? "" : ", " + colored("33", "eval_loss")));
    const int rest = std::max(6, o_.height - static_cast<int>(lines_.size()) - 1);
    for (const std::string& row : draw_curve(find(o_.metric), beside, o_.width, std::min(rest, 20), o_.color))
      lines_.push_back(row);
  }

  const RunView& run_;
  const PageOptions& o_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string text_page(const RunView& run, const PageOptions& options) {
  return Page(run, options).text();
}

}  // namespace qft::watch
