/* fuzz_translate.c - any bytes as the body of a request of the Responses and Messages APIs: their translation for chat.
 *
 * What is taken is a list of messages that chat takes too; what is refused has a text and a place. The client's own body, which the
 * answer repeats parts of, stays as it was. Seeds: corpus/translate. */
#include "frontend/chatmsg.h"
#include "frontend/endpoint.h"
#include "frontend/jsonread.h"
#include "frontend/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(json_t *asked)
{
	json_t *messages = json_object_get(asked, "messages"), *read;
	struct apierr e = {0}, params_e = {0};
	struct params p;

	CHECK(json_array_size(messages) > 0);
	read = chatmsg_read(messages, &e);
	CHECK(read || json_array_size(messages) > CHATMSG_MAX);
	json_decref(read);
	CHECK(params_read(&p, PARAMS_CHAT, asked, NULL, &params_e) || params_e.status == 400);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct endpoint *const endpoints[] = {&ENDPOINT_RESPONSES, &ENDPOINT_MESSAGES};
	struct errbuf err = {{0}};
	json_t *body, *before, *asked;
	size_t i;

	if (jsonread(&body, (const char *)data, size, &err) != ST_OK) return 0;
	before = json_deep_copy(body);
	for (i = 0; i < ARRAY_LEN(endpoints); i++) {
		struct apierr e = {0};

		asked = endpoints[i]->translate(body, &e);
		CHECK(json_equal(body, before));
		apierr_rename(&e, endpoints[i]->names);
		if (asked) check(asked);
		else CHECK(e.status == 400 && e.message[0] && e.param[0]);
		json_decref(asked);
	}
	json_decref(before);
	json_decref(body);
	return 0;
}
