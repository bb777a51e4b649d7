/* schemac.c - see schemac.h: the life of a compilation. The parts are described in schemac_impl.h. */
#include "frontend/schemac.h"

#include "frontend/schemac_impl.h"

void schemac_compile(struct gramctx *g, const json_t *schema, uint32_t body)
{
	struct schemac c = {.g = g};
	uint32_t from = gramb_start(g->b, body), to;

	map_init(&c.nodes);
	map_init(&c.sums);
	map_init(&c.constants);
	map_init(&c.formats);
	c.own = json_array();
	CHECK(c.own);
	gramjson_init(&c.json, g);
	if (!json_is_object(schema) && !json_is_boolean(schema)) gramctx_fail(g, ST_INVALID, "a schema is an object, true or false");
	schemadoc_init(&c.doc, g, schema);
	schemasum_init(&c);
	if (gramctx_is_ok(g)) {
		to = schemaput_node(&c, schemasum_node_of(&c, schema, false), body, gramjson_space(&c.json, body, from));
		gramb_final(g->b, to);
	}
	schemaput_all(&c);
	schemadoc_release(&c.doc);
	json_decref(c.own);
	map_release(&c.formats);
	map_release(&c.constants);
	map_release(&c.sums);
	map_release(&c.nodes);
}
