// Notices: what a user wants to know without having asked for a channel.
//
// The first time something of the kind happens at a place it is one line at
// WARNING; a place is a code object: a function of the user's, or what is left
// of one behind a break. Later ones are events of their channel like all
// others, which is to say silent, and so is a line that was said already, of
// another part of the same function. framejit.reset() forgets what was said.
#pragma once

#include <Python.h>

#include <string>

#include "frame_hook/event_log.h"

namespace framejit {

enum class Notice : uint8_t {
#define FJ_NOTICE(name, channel, text) k##name,
#include "frame_hook/notices.def"
#undef FJ_NOTICE
  kCount,
};

struct NoticeRow {
  const char* name;
  Channel channel;
  const char* text;
};
const NoticeRow& notice_row(Notice notice);

// Was it said of this code? For callers whose text costs something.
bool was_noticed(Notice notice, PyObject* code);
// Needs the GIL. A pending exception is kept.
void log_notice(Notice notice, PyObject* code, std::string text);
// The same where no code is known: the text names the place.
void log_notice(Notice notice, std::string text);
void forget_notices();

}  // namespace framejit
