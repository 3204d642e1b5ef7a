// What a server answers: an error of it becomes a line of at most 300 characters, and JSON is refused or bounded.
#include <nlohmann/json.hpp>

#include "composer/net/server_message.h"
#include "composer/util/json.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kLongest = 303;  // with "..."
  const std::string body(reinterpret_cast<const char*>(data), size);
  const net::ServerMessage said = net::message_of(body);
  for (const std::string& text : {said.code, said.text})
    fuzz::require(text.size() <= kLongest && text.find('\n') == std::string::npos);
  fuzz::require(net::xml_text(body, "Key").size() <= size);
  const auto json = util::parse_json_or_discard<nlohmann::json>(body);
  const nlohmann::json copy = json;
  if (!json.is_discarded()) fuzz::require(!copy.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).empty());
  return 0;
}
