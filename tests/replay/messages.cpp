// messages.json: misuse, and whether it ends in an error of a fitting type or a warning. Texts are our own.
#include "tests/replay/messages.h"

#include "tests/replay/errors.h"
#include "tests/replay/replay.h"
#include "tests/support/warnings.h"

namespace composer::replay {
namespace {

Json commit(const std::function<Json()>& misuse, const Json& recorded) {
  Json got = {{"error", nullptr}, {"result", nullptr}};
  const test::Warnings warnings;
  try {
    got["result"] = misuse();
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, recorded)["error"];
  }
  got["warned"] = !warnings.texts.empty();
  return got;
}

const std::function<Json()>* find(const std::string& id) {
  for (const Misuses* table : {&trainer_misuses(), &misuses_of_parts()})
    if (const auto found = table->find(id); found != table->end()) return &found->second;
  return nullptr;
}

Outcome run_messages(const Json& c, const Context&) {
  Json recorded = without_message(c);
  recorded = {{"error", recorded["error"]}, {"result", c.at("result")}, {"warned", !c.at("warnings").empty()}};
  if (refused_by_compiler(c)) return judge(c, recorded, {{"compiles", false}}, messages_rules());
  const auto* misuse = find(c.at("id"));
  if (misuse == nullptr)
    return unsupported("misuse of " + c.at("area").get<std::string>() + " that has no translation yet");
  return judge(c, recorded, commit(*misuse, recorded), messages_rules());
}

}  // namespace

Suite messages_suite() { return {"messages.json", "Misuse", run_messages, messages_rules()}; }

}  // namespace composer::replay
