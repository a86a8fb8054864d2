// Options and the event log.
#include <cstdlib>

#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class OptionsTest : public FrameHookTest {};

TEST_F(OptionsTest, EnvironmentIsReadAndValuesAreSettable) {
  EXPECT_EQ(options().recompile_limit, 8);
  setenv("FRAMEJIT_RECOMPILE_LIMIT", "3", 1);
  setenv("FRAMEJIT", "0", 1);
  setenv("FRAMEJIT_LOG", "guards,graphs", 1);
  setenv("FRAMEJIT_VERIFY", "perhaps", 1);  // malformed: the default stays
  EXPECT_EQ(options().recompile_limit, 8);  // read once
  reload_options();
  EXPECT_EQ(options().recompile_limit, 3);
  EXPECT_EQ(options().activation, "0");
  EXPECT_EQ(options().log, "guards,graphs");
  EXPECT_FALSE(options().verify);
  for (const OptionRow& row : option_rows()) unsetenv(row.environment);
  std::string error;
  EXPECT_TRUE(set_option("recompile_limit", "20", &error));
  EXPECT_EQ(option_text("recompile_limit"), "20");
  EXPECT_FALSE(set_option("recompile_limit", "many", &error));
  EXPECT_EQ(error, "recompile_limit: expected int, got 'many'");
  EXPECT_FALSE(set_option("nonsense", "1", &error));
  EXPECT_EQ(error, "no option named 'nonsense'");
}

TEST_F(OptionsTest, EveryRowHasItsColumns) {
  EXPECT_EQ(option_rows().size(), 11u);
  for (const OptionRow& row : option_rows()) {
    EXPECT_EQ(std::string(row.environment).rfind("FRAMEJIT", 0), 0u);
    EXPECT_FALSE(std::string(row.help).empty());
    EXPECT_TRUE(set_option(row.keyword, option_text(row.keyword), nullptr));
  }
}

TEST_F(OptionsTest, ListContains) {
  EXPECT_TRUE(list_contains("cse,dce", "dce"));
  EXPECT_TRUE(list_contains("cse, dce ", "dce"));
  EXPECT_FALSE(list_contains("cse,dce", "d"));
  EXPECT_FALSE(list_contains("", "d"));
}

TEST_F(OptionsTest, EventsGoToTheSinkOfTheirChannel) {
  std::vector<std::string> received;
  set_event_sink([&](const Event& event) {
    received.push_back(std::string(channel_name(event.channel)) + ": " +
                       event.text);
    log_event(Channel::k_guards, "from the sink");  // not re-entered
  });
  EXPECT_TRUE(set_enabled_channels("guards"));
  EXPECT_TRUE(enabled(Channel::k_guards));
  EXPECT_FALSE(enabled(Channel::k_kernels));
  log_event(Channel::k_guards, "a");
  log_event(Channel::k_kernels, "b");
  EXPECT_EQ(received, std::vector<std::string>{"guards: a"});
  EXPECT_EQ(recent_events().size(), 3u);
  EXPECT_FALSE(set_enabled_channels("graphs,typo"));
  EXPECT_TRUE(enabled(Channel::k_graphs));
  EXPECT_TRUE(set_enabled_channels("all"));
  EXPECT_TRUE(enabled(Channel::k_kernels));
  EXPECT_TRUE(set_enabled_channels(""));
  set_event_sink(nullptr);
  for (int i = 0; i < 1000; ++i) log_event(Channel::k_graphs, "x");
  EXPECT_EQ(recent_events().size(), 256u);
}

}  // namespace
}  // namespace framejit::testing
