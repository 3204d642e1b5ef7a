#include "composer/net/server_message.h"

#include <array>
#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/util/json.h"

namespace composer::net {
namespace {

constexpr std::size_t kLongest = 300;

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text.substr(0, kLongest)) {
    const bool blank = static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
    if (!blank)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return text.size() > kLongest ? line + "..." : line;
}

std::string field(const nlohmann::json& object, std::string_view name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

ServerMessage of_json(const nlohmann::json& json) {
  ServerMessage said;
  for (const char* name : {"error_code", "code"})
    if (said.code.empty()) said.code = field(json, name);
  for (const char* name : {"message", "error", "detail", "errorMessage"})
    if (said.text.empty()) said.text = field(json, name);
  if (!said.text.empty() || !json.is_object()) return said;
  if (json.contains("error")) return of_json(json["error"]);
  if (json.contains("errors") && json["errors"].is_array() && !json["errors"].empty())
    return of_json(json["errors"][0]);
  return said;
}

}  // namespace

std::string xml_text(std::string_view xml, std::string_view name, std::size_t from) {
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  std::size_t begin = xml.find(open, from);
  if (begin == std::string::npos) return {};
  begin += open.size();
  const std::size_t end = xml.find(close, begin);
  if (end == std::string::npos) return {};
  std::string text(xml.substr(begin, end - begin));
  constexpr std::array<std::pair<std::string_view, char>, 6> kEntities{
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&#39;", '\''}, {"&amp;", '&'}}};
  for (const auto& [entity, character] : kEntities)
    for (std::size_t at = 0; (at = text.find(entity, at)) != std::string::npos; ++at)
      text.replace(at, entity.size(), 1, character);
  return text;
}

ServerMessage message_of(std::string_view body) {
  const std::size_t first = body.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  ServerMessage said;
  if (body[first] == '{' || body[first] == '[') {
    if (const auto json = util::parse_json_or_discard<nlohmann::json>(body); !json.is_discarded()) said = of_json(json);
  } else if (body[first] == '<') {
    said = {xml_text(body, "Code"), xml_text(body, "Message"), xml_text(body, "Region")};
  } else {
    said.text = body;
  }
  return {one_line(said.code), one_line(said.text), one_line(said.region)};
}

}  // namespace composer::net
