// From a template's text to tokens: Jinja2's lexer with trim_blocks and lstrip_blocks. Internal to the module.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  op,
  end,
};

struct Token {
  TokenKind kind;
  int line;
  std::string value;  // of a name, an operator, digits without "_"; a text without quotes and escapes

  bool is(TokenKind wanted, std::string_view text) const { return kind == wanted && value == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::name, text); }
  bool is_op(std::string_view text) const { return is(TokenKind::op, text); }
};

/// What stands in an error for a token.
std::string describe(const Token& token);

/// Ends with a token `end`. Throws Error "NAME:LINE: ...".
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace qft::jinja
