// Splits a template into tokens, as Jinja2's lexer does with trim_blocks and lstrip_blocks. Internal to the module.
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
  std::string value;  // names, operators, digits without "_"; texts without quotes and escapes

  bool is(TokenKind wanted, std::string_view text) const { return kind == wanted && value == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::name, text); }
  bool is_op(std::string_view text) const { return is(TokenKind::op, text); }
};

/// Returns the token's description for errors.
std::string describe(const Token& token);

/// The last token is `end`. Throws Error "NAME:LINE: ...".
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace qft::jinja
