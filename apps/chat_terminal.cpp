#include "chat_terminal.h"

#include "qft/console/line_editor.h"
#include "qft/console/printable.h"
#include "qft/core/error.h"
#include "qft/infer/generator.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>

#include "chat_conversation.h"

namespace qft::apps {
namespace {

constexpr int kExitInterrupted = 130;  // as shells report SIGINT
constexpr std::string_view kBlank = " \t\n";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

class Dialogue {
 public:
  Dialogue(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance)
      : config_(config),
        chat_(chat),
        conversation_(config, chat, instance,
                      {[](std::string_view piece) { std::cout << console::printable(piece) << std::flush; },
                       console::Terminal::interrupted, "/new"}),
        history_(console::history_file("chat_history")),
        editor_(terminal_, history_, "> ") {}

  int run() {
    introduce();
    for (;;) {
      const console::Input input = editor_.read();
      if (input.end == console::Input::End::interrupted) return kExitInterrupted;
      if (input.end == console::Input::End::closed) return kExitOk;
      try {
        if (!take(input.text)) return kExitOk;
      } catch (const Error& error) {
        std::cerr << "error: " << error.what() << std::endl;  // for this message; the conversation continues
      }
    }
  }

 private:
  struct Command {
    std::string_view name, argument, does;
    bool (Dialogue::*run)(std::string_view);  ///< false ends the conversation
  };
  static const std::array<Command, 7> kCommands;

  void introduce() const {
    std::string adapters;
    for (const auto& adapter : config_.model.adapter_name_or_path) adapters += (adapters.empty() ? "" : ", ") + adapter;
    std::cout << "You are talking to " << config_.model.model_name_or_path
              << (adapters.empty() ? "" : " and the adapter " + adapters) << "; the chat template is "
              << (chat_.is_jinja() ? "the model's own" : chat_.spec().name) << ".\n"
              << "/help lists commands and keys, Ctrl-C stops an answer, Ctrl-D ends." << std::endl;
  }

  /// Handles a command or a message. False ends the conversation.
  bool take(const std::string& text) {
    const auto word = trimmed(text);
    if (word.empty()) return true;
    if (text.front() != '/') return answer(text);
    if (text.starts_with("//")) return answer(text.substr(1));
    const auto end = std::min(word.find_first_of(kBlank), word.size());
    const auto* command = std::ranges::find(kCommands, word.substr(1, end - 1), &Command::name);
    if (command != kCommands.end()) return (this->*command->run)(trimmed(word.substr(end)));
    std::cout << "There is no command " << word.substr(0, end) << ".\n";
    return help({});
  }

  bool answer(const std::string& text) {
    console::Terminal::forget_interrupt();
    tell(conversation_.answer(text));
    return true;
  }

  void tell(Conversation::Answer answer) const {
    if (answer == Conversation::Answer::none) std::cout << "There was no answer: the conversation is unchanged." << std::endl;
  }

  bool exit(std::string_view) { return false; }
  bool restart(std::string_view) {
    conversation_.restart();
    std::cout << "A new conversation begins." << std::endl;
    return true;
  }
  bool system(std::string_view text) {
    if (!text.empty()) {
      conversation_.set_system(std::string(text));
      std::cout << "The system message is set, and a new conversation begins." << std::endl;
    } else if (conversation_.system().empty()) {
      std::cout << "No system message is set: the chat template's own is used, if it has one." << std::endl;
    } else {
      std::cout << "The system message: " << console::printable(conversation_.system()) << std::endl;
    }
    return true;
  }
  bool undo(std::string_view) {
    const auto question = conversation_.undo();
    std::cout << (question ? "Removed, with its answer: " + console::printable(*question) : "There is nothing to remove.")
              << std::endl;
    return true;
  }
  bool regenerate(std::string_view) {
    if (conversation_.empty()) {
      std::cout << "There is no question to answer again." << std::endl;
      return true;
    }
    if (infer::sampler_options(config_).greedy)
      std::cout << "Without sampling (do_sample, temperature) the answer will be the same." << std::endl;
    console::Terminal::forget_interrupt();
    tell(conversation_.regenerate());
    return true;
  }
  bool help(std::string_view) {
    for (const auto& command : kCommands)
      std::cout << fmt::format("  {:<14} {}\n", fmt::format("/{} {}", command.name, command.argument), command.does);
    std::cout << "  //TEXT         sends /TEXT as a message\n"
                 "Enter sends; Alt-Enter, or a backslash at the end, begins a new line.\n"
                 "Up and Down recall earlier messages. Ctrl-C stops an answer or clears the line;\n"
                 "twice on an empty line it ends the program, as does Ctrl-D."
              << std::endl;
    return true;
  }

  const config::RunConfig& config_;
  const encode::ChatTemplate& chat_;
  Conversation conversation_;
  console::Terminal terminal_;
  console::History history_;
  console::LineEditor editor_;
};

const std::array<Dialogue::Command, 7> Dialogue::kCommands = {
    {{"new", "", "starts a new conversation", &Dialogue::restart},
     {"system", "TEXT", "sets the system message and starts a new conversation; alone shows it", &Dialogue::system},
     {"undo", "", "removes the last question and its answer", &Dialogue::undo},
     {"regen", "", "generates another answer to the last question", &Dialogue::regenerate},
     {"help", "", "shows this list", &Dialogue::help},
     {"exit", "", "ends the program", &Dialogue::exit},
     {"quit", "", "the same", &Dialogue::exit}}};

}  // namespace

int chat_on_terminal(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance) {
  return Dialogue(config, chat, instance).run();
}

}  // namespace qft::apps
