#pragma once
#include <string>
#include <string_view>

namespace composer::net {

struct ServerMessage {
  std::string code;  // such as NoSuchKey; empty: none
  std::string text;  // one line of at most 300 characters; empty: none
  // S3 only: the region of the bucket, if the request was signed for another region; empty: not reported.
  std::string region = {};
};

// Extracts the message from the body of an error response: the Code and Message of XML, the usual fields of JSON, or
// the beginning of a plain text. HTML gives nothing.
ServerMessage message_of(std::string_view body);

// The content of the first element with this name at or after `from`, with entities decoded; empty: there is none.
std::string xml_text(std::string_view xml, std::string_view name, std::size_t from = 0);

}  // namespace composer::net
