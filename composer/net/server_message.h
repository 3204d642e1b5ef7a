#pragma once
#include <string>
#include <string_view>

namespace composer::net {

struct ServerMessage {
  std::string code;  // such as NoSuchKey; empty: none
  std::string text;  // one line of at most 300 characters; empty: none
  // Of S3: where the bucket is, if the request was signed for another region; empty: not said.
  std::string region = {};
};

// What the body of an error says: the Code and Message of XML, the usual fields of JSON, or the beginning of a plain
// text. Nothing of HTML.
ServerMessage message_of(std::string_view body);

// The content of the first element of that name, with entities decoded; empty: none.
std::string xml_text(std::string_view xml, std::string_view name, std::size_t from = 0);

}  // namespace composer::net
